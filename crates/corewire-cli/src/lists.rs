//! Values on the command line: comma separated lists, sizes with a unit, durations.

use std::time::Duration;

/// The longest list a command takes.
const LIST_MAX: usize = 256;

/// A comma separated list of whole numbers of at least 1, each perhaps with a `K` or `M` (1,024 and 1,048,576).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counts(pub(crate) Vec<usize>);

/// A comma separated list of core numbers and ranges of them, such as `0,2-5`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Cpus(pub(crate) Vec<usize>);

/// For clap: reads [`Counts`].
pub(crate) fn counts(text: &str) -> Result<Counts, String> {
    let values = text.split(',').map(count).collect::<Result<Vec<_>, _>>()?;
    checked_length(values.len())?;
    Ok(Counts(values))
}

/// For clap: the size of a receive block, which the library wants to be 64 KiB to 1 GiB.
pub(crate) fn receive_buffer(text: &str) -> Result<usize, String> {
    match count(text)? {
        bytes @ 0x1_0000..=0x4000_0000 => Ok(bytes),
        _ => Err(format!("{text:?} is out of range: 64K to 1024M")),
    }
}

/// For clap: one whole number of at least 1, perhaps with a `K` or `M`.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let value: usize =
        digits.parse().map_err(|_| format!("{text:?} is not a whole number such as 64 or 64K"))?;
    match value.checked_mul(unit) {
        Some(0) => Err("0 is too small: the least is 1".into()),
        Some(value) => Ok(value),
        None => Err(format!("{text:?} is too large")),
    }
}

/// For clap: messages a second, perhaps with a `k` or `M` (1,000 and 1,000,000); 1 to 1,000,000,000.
pub(crate) fn rate(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1_000),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1_000_000),
        _ => (text, 1),
    };
    let value = digits.parse::<u64>().ok().and_then(|value| value.checked_mul(unit));
    value
        .filter(|rate| (1..=1_000_000_000).contains(rate))
        .ok_or_else(|| format!("{text:?} is not a rate such as 500 or 20k, 1 to 1000M a second"))
}

/// For clap: reads [`Cpus`].
pub(crate) fn cpus(text: &str) -> Result<Cpus, String> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (cpu(first)?, cpu(last)?);
        if last < first {
            return Err(format!("{part:?} runs backwards"));
        }
        checked_length(cpus.len() + (last - first) + 1)?;
        cpus.extend(first..=last);
    }
    Ok(Cpus(cpus))
}

/// For clap: seconds such as `0.5`, `3` or `2s`, or milliseconds such as `250ms`; at most an hour.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let (number, unit) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 1e-3),
        (None, Some(number)) => (number, 1.0),
        (None, None) => (text, 1.0),
    };
    let seconds: f64 =
        number.trim().parse().map_err(|_| format!("{text:?} is not a duration such as 0.5 or 250ms"))?;
    let seconds = seconds * unit;
    if !(0.0..=3600.0).contains(&seconds) {
        return Err(format!("{text:?} is not between 0 and 3600 seconds"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn cpu(text: &str) -> Result<usize, String> {
    match text.trim().parse() {
        Ok(cpu) if cpu < 1024 => Ok(cpu),
        _ => Err(format!("{text:?} is not a core number from 0 to 1023")),
    }
}

fn checked_length(length: usize) -> Result<(), String> {
    if length > LIST_MAX { Err(format!("the list has more than {LIST_MAX} entries")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_take_units_and_spaces() {
        assert_eq!(counts("1, 64,64K,1m").unwrap().0, [1, 64, 65_536, 1_048_576]);
    }

    #[test]
    fn counts_refuse_nothing_zero_words_and_overflow() {
        for bad in ["", "0", "1,,2", "-3", "ten", "K", "99999999999999999999", "18446744073709551615K"] {
            assert!(counts(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn rates_are_decimal_and_have_bounds() {
        assert_eq!(
            ["7", "20k", "3M", "1000M"].map(|text| rate(text).unwrap()),
            [7, 20_000, 3_000_000, 1_000_000_000]
        );
        for bad in ["", "0", "k", "-1", "1.5k", "1001M", "18446744073709551615k"] {
            assert!(rate(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn cpus_take_ranges() {
        assert_eq!(cpus("0,2-4,7").unwrap().0, [0, 2, 3, 4, 7]);
        assert_eq!(cpus("3-3").unwrap().0, [3]);
    }

    #[test]
    fn cpus_refuse_backward_ranges_and_absurd_numbers() {
        for bad in ["", "4-2", "0-", "-", "a", "1024", "0-999"] {
            assert!(cpus(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn durations_take_seconds_and_milliseconds() {
        assert_eq!(duration("0.5").unwrap(), Duration::from_millis(500));
        assert_eq!(duration("2s").unwrap(), Duration::from_secs(2));
        assert_eq!(duration("250ms").unwrap(), Duration::from_millis(250));
        for bad in ["", "-1", "nan", "inf", "3601", "1h"] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
    }
}
