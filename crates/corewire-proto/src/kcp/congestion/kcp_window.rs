//! The congestion window: slow start, then one segment more per round trip; halved once per loss event.

use super::super::wire::distance;

const INITIAL: u32 = 10;
const LEAST_THRESHOLD: u32 = 2;

#[derive(Debug)]
pub(in super::super) struct KcpWindow {
    window: u32,
    threshold: u32,
    window_max: u32,
    /// Segments acknowledged towards the next step of linear growth.
    credit: u32,
    /// A loss of a segment before this number belongs to a loss event that has been answered already.
    answered_until: u32,
}

impl KcpWindow {
    pub(super) fn new(window_max: u32, first_number: u32) -> Self {
        let window = INITIAL.min(window_max);
        Self { window, threshold: window_max, window_max, credit: 0, answered_until: first_number }
    }

    #[inline]
    pub(super) const fn segments(&self) -> u32 {
        self.window
    }

    #[inline]
    pub(super) fn on_acknowledged(&mut self, segments: u32) {
        if self.window >= self.window_max {
            return;
        }
        if self.window < self.threshold {
            self.window = (self.window + segments).min(self.threshold);
        } else {
            self.credit += segments;
            while self.credit >= self.window {
                self.credit -= self.window;
                self.window += 1;
            }
        }
        self.window = self.window.min(self.window_max);
    }

    /// Segment `number` was lost while later ones came through; `next` is the first number not yet sent.
    pub(super) fn on_loss(&mut self, number: u32, next: u32, in_flight: u32) {
        if !self.begin_loss_event(number, next) {
            return;
        }
        self.threshold = (in_flight / 2).max(LEAST_THRESHOLD);
        self.window = self.threshold.min(self.window);
    }

    /// Segment `number` ran into its time-out, and nothing sent after it was acknowledged either.
    pub(super) fn on_silence(&mut self, number: u32, next: u32) {
        if !self.begin_loss_event(number, next) {
            return;
        }
        self.threshold = (self.window / 2).max(LEAST_THRESHOLD);
        self.window = 1;
    }

    fn begin_loss_event(&mut self, number: u32, next: u32) -> bool {
        let is_new = distance(number, self.answered_until) >= 0;
        if is_new {
            self.answered_until = next;
            self.credit = 0;
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_fast_then_slowly_and_answers_a_loss_event_once() {
        let mut window = KcpWindow::new(64, 0);
        assert_eq!(window.segments(), 10);
        window.on_acknowledged(10);
        assert_eq!(window.segments(), 20);
        window.on_loss(3, 20, 20);
        assert_eq!(window.segments(), 10);
        window.on_loss(5, 20, 17);
        assert_eq!(window.segments(), 10, "both were in flight together");
        window.on_acknowledged(10);
        assert_eq!(window.segments(), 11);
        window.on_silence(20, 30);
        assert_eq!(window.segments(), 1);
        window.on_acknowledged(1000);
        assert!(window.segments() <= 64);
    }
}
