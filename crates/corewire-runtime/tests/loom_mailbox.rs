//! Tries the orders in which the threads of a mailbox can run.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p corewire-runtime --release --test loom_mailbox`
#![cfg(loom)]

#[allow(dead_code, unreachable_pub)]
#[path = "../src/mailbox.rs"]
mod mailbox;

mod mailbox_sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, Ordering};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
}

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use mailbox::Mailbox;

/// What an eventfd is to a worker: a wake before the wait is kept. Loom reports a wait that never ends as a
/// deadlock, which is how a lost wake-up shows.
#[derive(Clone)]
struct Doorbell(Arc<(Mutex<bool>, Condvar)>);

impl Doorbell {
    fn new() -> Self {
        Self(Arc::new((Mutex::new(false), Condvar::new())))
    }

    fn ring(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_one();
    }

    fn wait(&self) {
        let mut rung = self.0.0.lock().unwrap();
        while !*rung {
            rung = self.0.1.wait(rung).unwrap();
        }
        *rung = false;
    }
}

fn mailbox_with_doorbell() -> (Arc<Mailbox<u32>>, Doorbell) {
    let doorbell = Doorbell::new();
    let ringer = doorbell.clone();
    (Arc::new(Mailbox::new(move || ringer.ring())), doorbell)
}

fn receive(mailbox: &Mailbox<u32>, doorbell: &Doorbell, count: usize) -> Vec<u32> {
    let mut received = Vec::new();
    loop {
        mailbox.drain_into(&mut received);
        if received.len() >= count {
            return received;
        }
        if mailbox.prepare_park() {
            doorbell.wait();
        }
        mailbox.unpark();
    }
}

#[test]
fn two_senders_wake_the_owner_whenever_they_push() {
    // Three threads have too many orders to try them all in a test: those with up to three preemptions.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (mailbox, doorbell) = mailbox_with_doorbell();
        let senders = [1, 2].map(|mail| {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || mailbox.push(mail).unwrap())
        });
        let mut received = receive(&mailbox, &doorbell, 2);
        received.sort_unstable();
        assert_eq!(received, [1, 2]);
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

#[test]
fn one_sender_wakes_the_owner_for_each_of_its_mails() {
    loom::model(|| {
        let (mailbox, doorbell) = mailbox_with_doorbell();
        let sender = {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || {
                mailbox.push(1).unwrap();
                mailbox.push(2).unwrap();
            })
        };
        assert_eq!(receive(&mailbox, &doorbell, 2), [1, 2]);
        sender.join().unwrap();
    });
}

#[test]
fn mail_pushed_while_closing_comes_out_or_goes_back() {
    loom::model(|| {
        let (mailbox, _doorbell) = mailbox_with_doorbell();
        let sender = {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || mailbox.push(7))
        };
        let mut received = Vec::new();
        mailbox.close(&mut received);
        match sender.join().unwrap() {
            Ok(()) => assert_eq!(received, [7]),
            Err(mail) => {
                assert_eq!(mail, 7);
                assert!(received.is_empty());
            }
        }
    });
}
