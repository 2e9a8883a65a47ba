//! The little statistics that a benchmark needs.

/// The middle value, or the mean of the two middle ones; 0 of nothing.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match (values.len(), values.len() / 2) {
        (0, _) => 0.0,
        (odd, middle) if odd % 2 == 1 => values[middle],
        (_, middle) => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// The least and the greatest; `None` of nothing.
pub(crate) fn range(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values.into_iter().fold(None, |range, value| {
        let (least, greatest) = range.unwrap_or((value, value));
        Some((value.min(least), value.max(greatest)))
    })
}

/// A quotient that is 0 where nothing was counted.
pub(crate) fn per(amount: f64, count: f64) -> f64 {
    if count > 0.0 { amount / count } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_odd_even_and_no_values() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median([]), 0.0);
    }

    #[test]
    fn one_outlier_does_not_move_the_median() {
        assert_eq!(median([1.0, 1.1, 900.0]), 1.1);
    }

    #[test]
    fn the_range_holds_all_values() {
        assert_eq!(range([2.0, -1.0, 5.0]), Some((-1.0, 5.0)));
        assert_eq!(range([]), None);
    }

    #[test]
    fn a_quotient_by_nothing_is_zero() {
        assert_eq!(per(5.0, 0.0), 0.0);
        assert_eq!(per(5.0, 2.0), 2.5);
    }
}
