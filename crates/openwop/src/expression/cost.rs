//! How long an expression may take: told beforehand, from its text and from the values it looks at.
//!
//! An expression always ends, but loops within loops over what a caller sent may take hours, and a
//! step of a run is computed on a thread that others need. So there is a bound on how many steps an
//! expression could take at most. It depends on nothing but text and values: the same expression is
//! refused for the same values on every machine.

use cel::common::ast::{EntryExpr, Expr, IdedExpr, operators};
use serde_json::Value;

/// The most steps of one evaluation.
pub(super) const STEPS_MAX: u128 = 10_000_000;
/// So many bytes are compared or searched in about the time of a step.
const STEP_BYTES: u128 = 4_096;

/// What of an expression makes it long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Shape {
    /// How deep loops stand within loops. To look for something in a list is a loop.
    loops: u32,
    /// Items that are written in it.
    items: u32,
    /// How often lists may be added up to longer ones.
    additions: u32,
}

/// How much an expression looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Size {
    /// Items of all lists and members of all objects.
    items: u128,
    bytes: u128,
}

impl Shape {
    pub(super) fn of(expression: &IdedExpr) -> Self {
        let mut shape = Self::default();
        shape.loops = shape.walk(expression, "");
        shape
    }

    /// How many steps it takes at most, over values of this size.
    pub(super) fn steps(self, size: Size) -> u128 {
        if self.loops == 0 {
            return 0;
        }
        let items = size.items.saturating_add(u128::from(self.items));
        let longest = items.saturating_mul(1 + u128::from(self.additions));
        longest.saturating_pow(self.loops).saturating_mul(1 + size.bytes / STEP_BYTES)
    }

    /// Counts what is in `expression`, and gives how deep its loops stand. The loop around it
    /// gathers what it finds in `gathered`.
    fn walk(&mut self, expression: &IdedExpr, gathered: &str) -> u32 {
        match &expression.expr {
            Expr::Call(call) => {
                let is_own =
                    |arg: &IdedExpr| matches!(&arg.expr, Expr::Ident(name) if name == gathered);
                let adds = call.func_name == operators::ADD;
                self.additions += u32::from(adds && !call.args.first().is_some_and(is_own));
                let parts = call.target.as_deref().into_iter().chain(&call.args);
                let inside = self.deepest(parts, gathered);
                if call.func_name == operators::IN { inside.max(1) } else { inside }
            }
            Expr::Comprehension(each) => {
                let over = self.walk(&each.iter_range, gathered);
                let steps = [&each.accu_init, &each.loop_cond, &each.loop_step, &each.result];
                over.max(1 + self.deepest(steps, &each.accu_var))
            }
            Expr::List(list) => {
                self.count(list.elements.len());
                self.deepest(&list.elements, gathered)
            }
            Expr::Map(map) => self.entries(map.entries.iter().map(|entry| &entry.expr), gathered),
            Expr::Struct(one) => {
                self.entries(one.entries.iter().map(|entry| &entry.expr), gathered)
            }
            Expr::Select(select) => self.walk(&select.operand, gathered),
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => 0,
        }
    }

    fn entries<'e>(
        &mut self,
        entries: impl ExactSizeIterator<Item = &'e EntryExpr>,
        gathered: &str,
    ) -> u32 {
        self.count(entries.len());
        let parts = entries.flat_map(|entry| match entry {
            EntryExpr::StructField(field) => [Some(&field.value), None],
            EntryExpr::MapEntry(entry) => [Some(&entry.key), Some(&entry.value)],
        });
        self.deepest(parts.flatten(), gathered)
    }

    fn deepest<'e>(
        &mut self,
        parts: impl IntoIterator<Item = &'e IdedExpr>,
        gathered: &str,
    ) -> u32 {
        parts.into_iter().map(|part| self.walk(part, gathered)).max().unwrap_or(0)
    }

    fn count(&mut self, items: usize) {
        self.items = self.items.saturating_add(u32::try_from(items).unwrap_or(u32::MAX));
    }
}

impl Size {
    /// Adds what there is in `value`.
    pub(super) fn add(&mut self, value: &Value) {
        match value {
            Value::Array(items) => {
                self.items += items.len() as u128;
                for item in items {
                    self.add(item);
                }
            }
            Value::Object(members) => {
                self.items += members.len() as u128;
                for (name, value) in members {
                    self.bytes += name.len() as u128;
                    self.add(value);
                }
            }
            Value::String(text) => self.bytes += text.len() as u128,
            Value::Null | Value::Bool(_) | Value::Number(_) => self.bytes += 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use cel::Program;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_makes_an_expression_long_is_this_table() {
        let table = [
            ("variables.a + variables.b > 3", (0, 0, 1)),
            ("variables.a.map(x, x + 1)", (1, 1, 1)),
            ("variables.a.filter(x, x > 1).map(x, x)", (1, 2, 0)),
            ("variables.a.map(x, variables.b.exists(y, x == y))", (2, 1, 0)),
            ("variables.a.all(x, x in variables.b)", (2, 0, 0)),
            ("1 in variables.a", (1, 0, 0)),
            ("(variables.a + variables.a).exists(x, x == 1)", (1, 0, 1)),
            ("[[1, 2], [3]].map(x, x.map(y, y))", (2, 7, 0)),
            ("{'a': variables.b.map(x, x)}", (1, 2, 0)),
        ];
        for (source, (loops, items, additions)) in table {
            let program = Program::compile(source).unwrap();
            let shape = Shape::of(program.expression());
            assert_eq!(shape, Shape { loops, items, additions }, "{source}");
        }
    }

    #[test]
    fn steps_grow_with_loops_and_values() {
        let mut size = Size::default();
        size.add(&json!({"list": (0..99).collect::<Vec<_>>()}));
        assert_eq!(size.items, 100);
        let steps = |loops| Shape { loops, ..Shape::default() }.steps(size);
        assert_eq!([steps(0), steps(1), steps(2)], [0, 100, 10_000]);
        assert_eq!(steps(1_000), u128::MAX);
    }
}
