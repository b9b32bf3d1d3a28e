//! The bodies of a stencil. That of a column may be another one at the ends of a column.

use crate::body::{Body, Expr};

/// The bodies of a stencil.
#[derive(Debug)]
pub(crate) struct Bodies {
    all: Vec<Body>,
    /// The number of the body of a point, by whether the point is the first, and the last, of a column.
    at: [[usize; 2]; 2],
}

/// A body for a point.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) body: Body,
    /// Whether it may be another one if the point is the first or not, and if it is the last or not.
    pub(crate) depends: [bool; 2],
}

/// Where a body is that of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// The column has one point.
    Only,
    First,
    Last,
}

impl Bodies {
    /// The bodies that `make` gives for a point, by whether it is the first and the last. It is called once for each
    /// body that may differ from the others.
    pub(crate) fn of(mut make: impl FnMut([bool; 2]) -> Option<Made>) -> Option<Self> {
        let inner = make([false, false])?;
        let mut bodies = Self { all: vec![inner.body], at: [[0; 2]; 2] };
        for (end, ends) in [(0, [true, false]), (1, [false, true])] {
            if inner.depends[end] {
                let made = make(ends)?;
                bodies.at[usize::from(ends[0])][usize::from(ends[1])] = bodies.all.len();
                bodies.all.push(made.body);
                // Whether the body of the only point is this one.
                if !made.depends[1 - end] {
                    bodies.at[1][1] = bodies.all.len() - 1;
                }
            }
        }
        // The inner body may not depend on an end on which that of the other end depends.
        if bodies.all.len() > 1 && bodies.at[1][1] == 0 {
            bodies.at[1][1] = bodies.all.len();
            bodies.all.push(make([true, true])?.body);
        }
        Some(bodies)
    }

    /// All different bodies. The first one is that of inner points.
    pub(crate) fn all(&self) -> &[Body] {
        &self.all
    }

    /// The body of a point that is the first or not, and the last or not.
    pub(crate) fn at(&self, ends: [bool; 2]) -> &Body {
        &self.all[self.number(ends)]
    }

    /// The number of the body of a point that is the first or not, and the last or not.
    pub(crate) fn number(&self, [is_first, is_last]: [bool; 2]) -> usize {
        self.at[usize::from(is_first)][usize::from(is_last)]
    }

    /// The cases in which a point does not have the first body: the first case that holds has this body.
    pub(crate) fn cases(&self) -> Vec<(Case, usize)> {
        let [[inner, last], [first, only]] = self.at;
        let mut cases = match only {
            only if only == first => vec![(Case::First, first), (Case::Last, last)],
            only if only == last => vec![(Case::Last, last), (Case::First, first)],
            only => vec![(Case::Only, only), (Case::First, first), (Case::Last, last)],
        };
        // What follows decides alike.
        while cases.pop_if(|(_, body)| *body == inner).is_some() {}
        cases
    }

    /// Visits all expressions, in order.
    pub(crate) fn visit<'a>(&'a self, visitor: &mut impl FnMut(&'a Expr)) {
        for body in &self.all {
            body.visit(visitor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ends on which the body of a point depends.
    type Asks = fn([bool; 2]) -> [bool; 2];

    /// The bodies of a source, and how many were made.
    fn bodies(asks: Asks) -> (Bodies, usize) {
        let mut made = 0;
        let bodies = Bodies::of(|ends| {
            made += 1;
            Some(Made { body: Body::default(), depends: asks(ends) })
        });
        (bodies.unwrap(), made)
    }

    #[test]
    fn each_point_has_the_body_that_was_made_for_what_it_asks() {
        let all = [[false, false], [true, false], [false, true], [true, true]];
        // What a source asks: nothing, one end, the other end unless or if that is decided, both.
        let sources: [(Asks, usize); 8] = [
            (|_| [false, false], 1),
            (|_| [true, false], 2),
            (|_| [false, true], 2),
            (|[first, _]| [true, !first], 3),
            (|[_, last]| [!last, true], 3),
            (|[first, _]| [true, first], 3),
            (|[_, last]| [last, true], 3),
            (|_| [true, true], 4),
        ];
        for (asks, expected) in sources {
            let (bodies, made) = bodies(asks);
            assert_eq!((bodies.all.len(), made), (expected, expected));
            for [a, b] in all {
                for [c, d] in all {
                    // Bodies are the same if the answers to all that was asked are.
                    let [x, y] = asks([a, b]);
                    let same = (!x || a == c) && (!y || b == d) && asks([a, b]) == asks([c, d]);
                    let is = bodies.number([a, b]) == bodies.number([c, d]);
                    assert_eq!(is, same, "{expected}: {a} {b}, {c} {d}: {:?}", bodies.at);
                }
                let holds = |case: &Case| match case {
                    Case::Only => a && b,
                    Case::First => a,
                    Case::Last => b,
                };
                let found = bodies.cases().into_iter().find(|(case, _)| holds(case));
                let found = found.map_or(0, |(_, body)| body);
                assert_eq!(found, bodies.number([a, b]), "{expected}: {a} {b}: {:?}", bodies.at);
            }
        }
    }
}
