//! Footprints, by hand and against what the interpreter reads.
#![cfg(test)]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use stencil_translator::{Direction, Field, Point, Stencil, Type, Value};

fn stencil(text: &str) -> Stencil {
    Stencil::parse(text.parse().unwrap()).unwrap_or_else(|errors| panic!("{errors}"))
}

fn offsets(field: &Field) -> Vec<&[i64]> {
    field.footprint().offsets().collect()
}

#[test]
fn an_output_and_an_unread_input_have_none() {
    let stencil = stencil("fn f(o: Out<f64, 2>, t: In<f64, 2>) { o.set(1.0); }");
    for field in stencil.fields() {
        assert_eq!(offsets(field), [[0_i64; 0]; 0]);
        assert_eq!((field.footprint().range(0), field.footprint().range(1)), ((0, 0), (0, 0)));
    }
}

#[test]
fn a_cross_has_no_diagonals() {
    let stencil =
        stencil("fn f(o: Out<f64, 2>, t: In<f64, 2>) { o.set(t.at(-2, 0) + t.at(0, 3)); }");
    let t = &stencil.fields()[1];
    assert_eq!(offsets(t), [[-2, 0], [0, 3]]);
    assert_eq!((t.footprint().range(0), t.footprint().range(1)), ((-2, 0), (0, 3)));
    assert!(!t.footprint().has_diagonals());
}

#[test]
fn a_corner_is_a_diagonal() {
    let stencil = stencil("fn f(o: Out<f64, 3>, t: In<f64, 3>) { o.set(t.at(1, 0, -1)); }");
    let t = &stencil.fields()[1];
    assert_eq!([0, 1, 2].map(|axis| t.footprint().range(axis)), [(1, 1), (0, 0), (-1, -1)]);
    assert!(t.footprint().has_diagonals());
}

#[test]
fn both_branches_count() {
    let stencil = stencil(
        "fn f(o: Out<f64, 1>, t: In<f64, 1>) {
            let a = if t.at(0) > 0.0 { t.at(-3) } else { t.at(1) };
            if a > t.at(2) && t.at(-4) > 0.0 { o.set(t.at(5)); } else { o.set(a + t.at(-6)); }
        }",
    );
    assert_eq!(offsets(&stencil.fields()[1]), [[-6], [-4], [-3], [0], [1], [2], [5]]);
}

#[test]
fn a_branch_that_is_known_not_to_be_taken_does_not_count() {
    let stencil = stencil(
        "fn f(o: Out<f64, 1>, t: In<f64, 1>) {
            let mut a = 0.0;
            for k in 0..3 { if k == 1 { a += t.at(k); } else { a += if k < 1 { 1.0 } else { t.at(-k) }; } }
            o.set(a);
        }",
    );
    assert_eq!(offsets(&stencil.fields()[1]), [[-2], [1]]);
}

#[test]
fn loops_and_tables_give_offsets() {
    let stencil = stencil(
        "fn f(o: Out<f64, 2>, t: In<f64, 2>) {
            const X: [i64; 3] = [0, 2, -1];
            let mut a = 0.0;
            for i in 0..3 { for j in -1..=0 { a += t.at(X[i], 2 * j + 1); } }
            o.set(a);
        }",
    );
    assert_eq!(
        offsets(&stencil.fields()[1]),
        [[-1, -1], [-1, 1], [0, -1], [0, 1], [2, -1], [2, 1]]
    );
}

#[test]
fn a_helper_knows_what_its_call_knows() {
    let stencil = stencil(
        "#[stencil_fn] fn pull(f: In<f64, 1>, k: i64) -> f64 { const X: [i64; 2] = [-1, 3]; f.at(X[k]) }
        #[stencil] fn f(o: Out<f64, 1>, t: In<f64, 1>) { o.set(pull(t, 0) + pull(t, 1)); }",
    );
    assert_eq!(offsets(&stencil.fields()[1]), [[-1], [3]]);
}

#[test]
fn arithmetic_in_the_argument_of_a_helper_is_known() {
    let stencil = stencil(
        "const Z: i64 = 3;
        #[stencil_fn] fn pull(f: In<f64, 1>, k: i64) -> f64 { f.at(k) }
        #[stencil_fn] fn double(f: In<f64, 1>, k: i64) -> f64 { pull(f, 2 * k) / (8 / k) as f64 }
        #[stencil] fn f(o: Out<f64, 1>, t: In<f64, 1>) {
            let mut a = pull(t, 2 - 1) + pull(t, -Z) + double(t, Z + 1);
            for k in 0..2 { a += pull(t, k - 2); }
            o.set(a);
        }",
    );
    assert_eq!(offsets(&stencil.fields()[1]), [[-3], [-2], [-1], [1], [8]]);
}

#[test]
fn known_conditions_and_chosen_integers_stay_known() {
    let stencil = stencil(
        "#[stencil_fn] fn pick(f: In<f64, 1>, is_left: bool) -> f64 { if is_left { f.at(-1) } else { f.at(5) } }
        #[stencil] fn f(o: Out<f64, 1>, t: In<f64, 1>) {
            let mut a = pick(t, !false) + t.at((-3_i64).abs());
            for k in 0..2 { a += pick(t, k == k) + t.at((k + 6).min(6)); }
            o.set(a);
        }",
    );
    assert_eq!(offsets(&stencil.fields()[1]), [[-1], [3], [6]]);
}

#[test]
fn a_helper_without_a_caller_is_accepted() {
    let stencil = stencil(
        "const X: [f64; 2] = [1.0, 2.0];
        #[stencil_fn] fn pull(f: In<f64, 1>, k: i64) -> f64 { let a = X[k] / (8 / k) as f64; a * f.at(k) }
        #[stencil_fn] fn more(f: In<f64, 1>, k: i64) -> f64 { for n in 0..k { let b = n; } pull(f, k + 1) }
        #[stencil] fn f(o: Out<f64, 1>) { o.set(index(0) as f64); }",
    );
    assert_eq!(offsets(&stencil.fields()[0]), [[0_i64; 0]; 0]);
}

#[test]
fn footprints_of_helpers_add() {
    let stencil = stencil(
        "#[stencil_fn] fn step(f: In<f64, 2>) -> f64 { f.at(1, 0) - f.at(0, 0) }
        #[stencil_fn] fn twice(f: In<f64, 2>, g: In<f64, 2>) -> f64 { step(f.shift(1, 0)) - step(g.shift(0, -1).shift(0, -1)) }
        #[stencil] fn f(o: Out<f64, 2>, t: In<f64, 2>, u: In<f64, 2>) { o.set(twice(u, t.shift(3, 0)) + u.shift(-1, 0).at(0, 1)); }",
    );
    assert_eq!(offsets(&stencil.fields()[1]), [[3, -2], [4, -2]]);
    assert_eq!(offsets(&stencil.fields()[2]), [[-1, 1], [1, 0], [2, 0]]);
}

#[test]
fn an_update_in_place_reads_the_point_itself() {
    let stencil = stencil("fn f(o: InOut<f64, 2>) { o.set(2.0 * o.at(0, 0)); }");
    assert_eq!(offsets(&stencil.fields()[0]), [[0, 0]]);
}

#[test]
fn a_read_in_a_branch_for_an_end_of_a_column_counts_there_alone() {
    let column = stencil(
        "#[column(backward, axis = 1)] fn f(o: Out<f64, 2>, u: InOut<f64, 2>, t: In<f64, 2>) {
            if first() { o.set(t.at(3, 0)); }
            else if last() { o.set(o.at(0, 1) + t.at(0, -2)); }
            else { o.set(t.at(0, 0) + t.at(0, 1)); }
            u.set(if first() && t.at(1, 0) > 0.0 { 1.0 } else { u.at(0, 0) });
        }",
    );
    let [o, u, t] = column.fields() else { panic!("three fields") };
    assert_eq!((offsets(o).len(), offsets(u)), (0, vec![&[0, 0][..]]));
    let at = |ends| t.footprint_at(ends).offsets().map(<[i64]>::to_vec).collect::<Vec<_>>();
    assert_eq!(at([true, false]), [[1, 0], [3, 0]]);
    assert_eq!(at([true, true]), [[1, 0], [3, 0]]);
    assert_eq!(at([false, true]), [[0, -2]]);
    assert_eq!(at([false, false]), [[0, 0], [0, 1]]);
    assert_eq!(offsets(t), [[0, -2], [0, 0], [0, 1], [1, 0], [3, 0]]);
    let all = column.column().map(|column| (column.direction, column.axis));
    assert_eq!(all, Some((Direction::Backward, 1)));
}

type Box3 = Vec<(i64, i64)>;

/// The offsets at which the interpreter reads each field, over points whose values take all branches.
fn reads(stencil: &Stencil) -> Vec<BTreeSet<Vec<i64>>> {
    let mut random = fastrand::Rng::with_seed(7);
    let found = RefCell::new(vec![BTreeSet::new(); stencil.fields().len()]);
    for _ in 0..200 {
        let values = RefCell::new(random.fork());
        let value = |ty| {
            let mut random = values.borrow_mut();
            match ty {
                Type::F32 => Value::F32(random.f32() - 0.5),
                Type::F64 => Value::F64(random.f64() - 0.5),
                Type::I32 => Value::I32(random.i32(..)),
                Type::I64 => Value::I64(random.i64(..)),
                Type::U32 => Value::U32(random.u32(..)),
                Type::Bool => Value::Bool(random.bool()),
            }
        };
        let scalars: Vec<_> = stencil.scalars().iter().map(|scalar| value(scalar.ty())).collect();
        let ends = [random.bool(), random.bool()];
        let index = [random.i64(0..9), random.i64(0..9), random.i64(0..9)];
        let read = |field: usize, offset: &[i64]| {
            let known = &stencil.fields()[field];
            // What a column has set at the previous point is no part of the footprint.
            if !known.intent().is_output() || offset.iter().all(|axis| *axis == 0) {
                found.borrow_mut()[field].insert(offset.to_vec());
            }
            value(known.element())
        };
        stencil
            .interpret(&Point {
                read: &read,
                scalars: &scalars,
                index: &index,
                extent: &[9, 9, 9],
                ends,
            })
            .unwrap();
    }
    found.into_inner()
}

/// Whether the reads lie in a box, and reach each of its sides.
fn fits(reads: &BTreeSet<Vec<i64>>, sides: &Box3) -> bool {
    reads.is_empty()
        || sides.iter().enumerate().all(|(axis, &(low, high))| {
            let along = || reads.iter().map(|offset| offset[axis]);
            along().min() == Some(low) && along().max() == Some(high)
        })
}

#[test]
fn a_footprint_that_is_wrong_by_one_is_noticed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut mutants = 0;
    for name in ["heat", "gray_scott", "moments", "upwind", "integers", "thomas", "integral"] {
        let stencil =
            stencil(&fs::read_to_string(folder.join(name).with_extension("stencil")).unwrap());
        for (field, reads) in stencil.fields().iter().zip(reads(&stencil)) {
            let all: BTreeSet<Vec<i64>> =
                field.footprint().offsets().map(<[i64]>::to_vec).collect();
            assert_eq!(all, reads, "{name}, {}", field.name());
            let sides: Box3 =
                (0..stencil.rank()).map(|axis| field.footprint().range(axis)).collect();
            assert!(fits(&reads, &sides), "{name}, {}", field.name());
            for axis in (0..stencil.rank()).filter(|_| !reads.is_empty()) {
                for (low, high) in [(1, 0), (-1, 0), (0, 1), (0, -1)] {
                    let mut mutant = sides.clone();
                    mutant[axis] = (mutant[axis].0 + low, mutant[axis].1 + high);
                    assert!(!fits(&reads, &mutant), "{name}, {}, {mutant:?}", field.name());
                    mutants += 1;
                }
            }
        }
    }
    assert!(mutants > 40, "{mutants}");
}
