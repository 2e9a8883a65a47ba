//! Square matrices over the field, as lists of rows.

use super::field::{add_multiple, inverse, multiply, power};

/// Row `r` has the powers of `r`.
pub(super) fn vandermonde(rows: usize, columns: usize) -> Vec<Vec<u8>> {
    (0..rows).map(|row| (0..columns).map(|column| power(row as u8, column)).collect()).collect()
}

pub(super) fn product(a: &[Vec<u8>], b: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let row_of = |row: &Vec<u8>| {
        let mut sum = vec![0; b.first().map_or(0, Vec::len)];
        row.iter().zip(b).for_each(|(factor, row)| add_multiple(&mut sum, *factor, row));
        sum
    };
    a.iter().map(row_of).collect()
}

/// The inverse by elimination; `None` when there is none.
pub(super) fn inverted(mut matrix: Vec<Vec<u8>>) -> Option<Vec<Vec<u8>>> {
    let size = matrix.len();
    let mut result: Vec<Vec<u8>> =
        (0..size).map(|row| (0..size).map(|column| u8::from(row == column)).collect()).collect();
    for column in 0..size {
        let pivot = (column..size).find(|row| matrix[*row][column] != 0)?;
        matrix.swap(column, pivot);
        result.swap(column, pivot);
        let scale = inverse(matrix[column][column])?;
        for row in [&mut matrix[column], &mut result[column]] {
            row.iter_mut().for_each(|value| *value = multiply(*value, scale));
        }
        let (pivot_row, pivot_result) = (matrix[column].clone(), result[column].clone());
        for row in (0..size).filter(|row| *row != column) {
            let factor = matrix[row][column];
            add_multiple(&mut matrix[row], factor, &pivot_row);
            add_multiple(&mut result[row], factor, &pivot_result);
        }
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_times_its_inverse_changes_nothing() {
        let top = vandermonde(6, 6);
        let inverse = inverted(top.clone()).expect("the rows are independent");
        assert_eq!(inverted(product(&top, &inverse)), Some(product(&inverse, &top)));
        assert_eq!(product(&top, &inverse)[2], [0, 0, 1, 0, 0, 0]);
        assert_eq!(inverted(vec![vec![1, 2], vec![1, 2]]), None);
    }
}
