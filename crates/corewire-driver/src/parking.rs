//! Agreeing with other threads on when they must wake a driver.

/// What a driver asks before it sleeps, so that other threads pay for a wake-up only while it does.
///
/// A queue that other threads push to implements this. [`Driver::turn_or_park`](crate::Driver::turn_or_park) looks at
/// it while it looks for events, and announces the sleep only when it is really about to sleep.
pub trait Parking {
    /// Something was pushed that the owner has not taken: there is no need to sleep. Called again and again without a
    /// pause, so it costs a load at most. It may overlook what is just being pushed.
    fn has_mail(&self) -> bool;

    /// The driver is about to sleep: from now on a push must wake it ([`Waker`](crate::Waker)), until the owner
    /// says that it is awake. False: something has been pushed already, and the driver does not sleep.
    ///
    /// It overlooks nothing: a push that it does not see sees that the owner sleeps.
    fn prepare_park(&self) -> bool;
}

/// Nobody pushes anything.
impl Parking for () {
    fn has_mail(&self) -> bool {
        false
    }

    fn prepare_park(&self) -> bool {
        true
    }
}
