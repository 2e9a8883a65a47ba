//! The calls of a channel, in each mode.

use bytes::Bytes;
use corewire_proto::rpc::Mode;

use super::call::{CallFuture, StreamingCall};
use super::channel::Channel;
use super::options::IntoPath;
use super::request::Request;
use super::streaming::{BidiStreaming, ClientStreaming, ServerStreaming};
use super::unary::UnaryCall;
use crate::message::Message;

impl Channel {
    /// Calls a method with one request and one response. The call begins when the future is first polled.
    #[inline]
    pub fn unary(&self, path: impl IntoPath, request: impl Into<Bytes>) -> UnaryCall {
        let mut call = Request::new(path.into_path(), Mode::Unary, Some(request.into()));
        call.end = true;
        CallFuture::new(self, call)
    }

    /// As [`unary`](Self::unary), with messages of any type.
    pub fn call<Req: Message, Resp: Message>(&self, path: impl IntoPath, request: Req) -> UnaryCall<Resp> {
        CallFuture::new(self, Request::of_message(path.into_path(), Mode::Unary, request))
    }

    /// Calls a method with any number of requests and one response.
    pub fn client_stream<Req: Message, Resp: Message>(
        &self,
        path: impl IntoPath,
    ) -> StreamingCall<ClientStreaming<Req, Resp>> {
        CallFuture::new(self, Request::new(path.into_path(), Mode::ClientStream, None))
    }

    /// Calls a method with one request and any number of responses.
    pub fn server_stream<Req: Message, Resp: Message>(
        &self,
        path: impl IntoPath,
        request: Req,
    ) -> StreamingCall<ServerStreaming<Resp>> {
        CallFuture::new(self, Request::of_message(path.into_path(), Mode::ServerStream, request))
    }

    /// Calls a method with any number of requests and responses.
    pub fn bidi<Req: Message, Resp: Message>(
        &self,
        path: impl IntoPath,
    ) -> StreamingCall<BidiStreaming<Req, Resp>> {
        CallFuture::new(self, Request::new(path.into_path(), Mode::Bidi, None))
    }

    /// Opens a stream of the `STREAM_*` family on a route.
    pub fn stream(&self, path: impl IntoPath) -> StreamingCall<BidiStreaming<Bytes, Bytes>> {
        let mut request = Request::new(path.into_path(), Mode::Bidi, None);
        request.is_stream = true;
        CallFuture::new(self, request)
    }
}

impl<Req: Message, Resp: Message> CallFuture<ClientStreaming<Req, Resp>> {
    /// Begins with this message. Calls of version 1 need it: there a call begins with its first message, and a frame
    /// without one would be an empty message to the server. Without it such a call fails before it begins.
    pub fn first(self, message: Req) -> Self {
        self.with_first(message.encode(), false)
    }

    /// Begins with this message and ends the requests with it.
    pub fn only(self, message: Req) -> Self {
        self.with_first(message.encode(), true)
    }
}

impl<Req: Message, Resp: Message> CallFuture<BidiStreaming<Req, Resp>> {
    /// Begins with this message. Calls of version 1 need it: there a call begins with its first message, and a frame
    /// without one would be an empty message to the server. Without it such a call fails before it begins. Not for streams
    /// of the `STREAM_*` family, which begin without one.
    pub fn first(self, message: Req) -> Self {
        self.with_first(message.encode(), false)
    }

    /// Begins with this message and ends the requests with it.
    pub fn only(self, message: Req) -> Self {
        self.with_first(message.encode(), true)
    }
}
