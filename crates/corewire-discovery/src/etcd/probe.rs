use super::EtcdOptions;
use super::session::Failure;
use etcd_client::{Client, ConnectOptions, Error, GetOptions};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// How long a member has to itself before the next one is asked beside it.
const STAGGER: Duration = Duration::from_millis(100);
/// Pings on an idle connection; etcd closes connections that ping more often than every 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(6);
const PING_TIMEOUT: Duration = Duration::from_secs(4);

/// Why there is no client.
#[derive(Debug)]
pub(super) struct NoMember {
    pub(super) failure: Failure,
    /// One of them is there, and does not do what it is asked.
    pub(super) reached: bool,
}

/// A client of the member that answers first. All are asked, beginning with the one of this number, each a moment after
/// the one before or as soon as that one fails: one that swallows what it is sent costs that moment.
pub(super) async fn connect(options: Arc<EtcdOptions>, first: usize) -> Result<Client, NoMember> {
    let members = &options.members;
    let mut next = (0..members.len()).map(|n| members[(first % members.len() + n) % members.len()].clone());
    let mut asking = JoinSet::new();
    let mut no_member = NoMember { failure: Failure(String::new()), reached: false };
    loop {
        if let Some(member) = next.next() {
            asking.spawn(ask(options.clone(), member));
        }
        let patience = if next.len() > 0 { STAGGER } else { Duration::MAX };
        let answered = match tokio::time::timeout(patience, asking.join_next()).await {
            Err(_) => continue,
            Ok(None) => return Err(no_member),
            Ok(Some(answered)) => answered,
        };
        match answered {
            Ok((_, Ok(client))) => return Ok(client),
            Ok((member, Err(NoMember { failure: Failure(reason), reached }))) => {
                let Failure(all) = &mut no_member.failure;
                let separator = if all.is_empty() { "" } else { "; " };
                all.push_str(&format!("{separator}{member}: {reason}"));
                no_member.reached |= reached;
            }
            Err(panic) => no_member.failure = Failure(format!("the client failed: {panic}")),
        }
    }
}

async fn ask(options: Arc<EtcdOptions>, member: String) -> (String, Result<Client, NoMember>) {
    let limit = options.request_timeout;
    let answer = tokio::time::timeout(limit, client(&options, &member)).await;
    let late = |_| Err(away(format!("no answer within {limit:?}")));
    (member, answer.unwrap_or_else(late))
}

/// A client of one member, which has given an answer that it must ask the others for.
async fn client(options: &EtcdOptions, member: &str) -> Result<Client, NoMember> {
    // A plain connection first: it says best why there is none.
    let stream = TcpStream::connect(member).await.map_err(|error| away(error.to_string()))?;
    // To a port of this machine where nobody listens, TCP may connect to itself.
    if stream.local_addr().ok() == stream.peer_addr().ok() {
        return Err(away("nobody listens".into()));
    }
    drop(stream);
    let refused = |error: Error| NoMember { reached: is_answer(&error), failure: error.into() };
    let mut client = Client::connect([member], Some(connect_options(options))).await.map_err(refused)?;
    let one_key = GetOptions::new().with_keys_only();
    client.get(format!("/{}/", options.prefix), Some(one_key)).await.map_err(refused)?;
    Ok(client)
}

fn away(reason: String) -> NoMember {
    NoMember { failure: Failure(reason), reached: false }
}

/// Whether etcd itself has said so, and not the connection to it.
fn is_answer(error: &Error) -> bool {
    const CANCELLED: i32 = 1;
    const UNKNOWN: i32 = 2;
    const DEADLINE_EXCEEDED: i32 = 4;
    const UNAVAILABLE: i32 = 14;
    match error {
        Error::GRpcStatus(status) => {
            ![CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, UNAVAILABLE].contains(&(status.code() as i32))
        }
        _ => false,
    }
}

fn connect_options(options: &EtcdOptions) -> ConnectOptions {
    let mut connect = ConnectOptions::new()
        .with_connect_timeout(options.request_timeout)
        .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
        .with_keep_alive_while_idle(true)
        .with_require_leader(true)
        .with_auto_token_refresh(true);
    if let Some((name, password)) = &options.user {
        connect = connect.with_user(name, password);
    }
    #[cfg(feature = "etcd-tls")]
    if let Some(tls) = &options.tls {
        connect = connect.with_tls(super::options::client_tls(tls));
    }
    connect
}
