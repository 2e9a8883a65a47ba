use super::book::Put;
use super::keys::encode_value;
use super::leases::{LeaseId, Pace};
use super::renew::renew_once;
use super::session::Failure;
use super::worker::{AllGone, Worker};
use etcd_client::{Client, Compare, CompareOp, Error, PutOptions, Txn, TxnOp, TxnOpResponse};

/// Operations in one transaction; etcd's own limit is 128 unless set otherwise.
const BATCH: usize = 100;

/// What is written to etcd: leases, registrations and deletions.
impl Worker {
    /// Renews all leases; what was under those that are gone is put again.
    pub(super) async fn renew_now(&mut self, client: &mut Client) -> Result<(), Failure> {
        let leases = self.book.leases().borrow().clone();
        let pace = Pace::of(&leases, self.options.request_timeout);
        let held: Vec<LeaseId> = leases.into_values().collect();
        let gone = renew_once(client, &held, pace.answer_max).await?;
        gone.into_iter().for_each(|lease| self.book.forget_lease(lease));
        Ok(())
    }

    async fn lease(&mut self, client: &mut Client, ttl_s: i64) -> Result<LeaseId, Failure> {
        if let Some(lease) = self.book.lease(ttl_s) {
            return Ok(lease);
        }
        let lease = LeaseId(self.timed(client.lease_grant(ttl_s, None)).await?.id());
        self.book.add_lease(ttl_s, lease);
        Ok(lease)
    }

    pub(super) async fn put_some(&mut self, client: &mut Client) -> Result<(), Failure> {
        let puts = self.book.next_puts(BATCH);
        if puts.is_empty() {
            return Ok(());
        }
        match self.put(client, &puts).await {
            Ok(None) => {}
            Ok(Some(_)) if puts.len() > 1 => {
                // One of them is at fault; the others shall not suffer for it.
                for (done, put) in puts.iter().enumerate() {
                    match self.put(client, std::slice::from_ref(put)).await {
                        Ok(None) => {}
                        Ok(Some(reason)) => self.book.refused(put, &reason),
                        Err(failure) => return Err(self.put_later(&puts[done..], failure)),
                    }
                }
            }
            Ok(Some(reason)) => puts.iter().for_each(|put| self.book.refused(put, &reason)),
            Err(failure) => return Err(self.put_later(&puts, failure)),
        }
        Ok(())
    }

    fn put_later(&mut self, puts: &[Put], failure: Failure) -> Failure {
        puts.iter().for_each(|put| self.book.queue(&put.key));
        failure
    }

    /// Puts all or none. Returns the reason if etcd refuses them.
    async fn put(&mut self, client: &mut Client, puts: &[Put]) -> Result<Option<String>, Failure> {
        let mut operations = Vec::with_capacity(puts.len());
        let mut leases = Vec::with_capacity(puts.len());
        for put in puts {
            let lease = self.lease(client, put.ttl_s).await?;
            let value = match encode_value(&put.endpoint) {
                Ok(value) => value,
                Err(error) => return Ok(Some(error.to_string())),
            };
            leases.push(lease);
            let options = PutOptions::new().with_lease(lease.0);
            operations.push(TxnOp::put(self.keys.encode(&put.key), value, Some(options)));
        }
        puts.iter().zip(&leases).for_each(|(put, lease)| self.book.begins(put, *lease));
        match self.timed_result(client.txn(Txn::new().and_then(operations))).await? {
            Ok(response) => {
                let revision = response.header().map_or(0, |header| header.revision());
                for (put, lease) in puts.iter().zip(leases) {
                    if !self.book.is_current(&put.key, put.number) {
                        continue;
                    }
                    // Who is told that it is registered is to find it.
                    self.own_writes.insert(put.key.clone(), revision);
                    self.catalog.put_or_warn(&put.endpoint);
                    if !self.book.granted(put, lease) {
                        self.catalog.remove(&put.key.0, &put.key.1);
                    }
                }
                Ok(None)
            }
            Err(error) if is(&error, NOT_FOUND) => {
                // A lease ran out under us. What was under it is put again under a new one.
                self.renew_now(client).await?;
                if leases.into_iter().all(|lease| self.book.holds(lease)) {
                    return Err(error.into());
                }
                puts.iter().for_each(|put| self.book.queue(&put.key));
                Ok(None)
            }
            Err(error) if is_refusal(&error) => Ok(Some(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn delete_some(&mut self, client: &mut Client) -> Result<(), Failure> {
        let deletions = self.book.next_deletions(BATCH);
        if deletions.is_empty() {
            return Ok(());
        }
        let operations = deletions.iter().map(|(key, lease)| {
            // Only what stands under a lease of ours: the instance may be somebody else's by now.
            let key = self.keys.encode(key);
            let is_ours = Compare::lease(key.clone(), CompareOp::Equal, lease.0);
            TxnOp::txn(Txn::new().when([is_ours]).and_then([TxnOp::delete(key, None)]))
        });
        let transaction = Txn::new().and_then(operations.collect::<Vec<_>>());
        let response = self.timed(client.txn(transaction)).await?;
        let revision = response.header().map_or(0, |header| header.revision());
        for ((key, _), answer) in deletions.into_iter().zip(response.op_responses()) {
            // Where nothing was ours, older events of the key are still news.
            if matches!(answer, TxnOpResponse::Txn(inner) if inner.succeeded()) {
                self.own_writes.insert(key.clone(), revision);
            }
            self.book.deleted(&key);
        }
        Ok(())
    }

    /// Deletes what is still to be deleted, and gives the leases back.
    pub(super) async fn leave(&mut self, client: &mut Client) -> Result<AllGone, Failure> {
        while self.book.has_work() {
            self.delete_some(client).await?;
            self.put_some(client).await?;
        }
        let leases = self.book.leases().borrow().clone();
        for lease in leases.into_values() {
            self.timed(client.lease_revoke(lease.0)).await?;
        }
        Ok(AllGone)
    }
}

// Codes of gRPC.
const INVALID_ARGUMENT: i32 = 3;
const NOT_FOUND: i32 = 5;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;

fn is(error: &Error, code: i32) -> bool {
    matches!(error, Error::GRpcStatus(status) if status.code() as i32 == code)
}

/// Whether the same request would be refused again.
fn is_refusal(error: &Error) -> bool {
    [INVALID_ARGUMENT, PERMISSION_DENIED, RESOURCE_EXHAUSTED].iter().any(|code| is(error, *code))
}
