//! Which step may run next: pure bookkeeping of what each needs and what became of it.

use std::collections::BTreeSet;

/// Where a step stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// What it needs is not there yet.
    Waiting,
    /// It is running.
    Running,
    /// It passed, or failed and those that need it run all the same.
    Done,
    /// It failed.
    Failed,
    /// Something that it needs failed.
    NotReached,
}

/// Steps by their numbers, what each needs, and where each stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    needs: Vec<Vec<usize>>,
    standing: Vec<Standing>,
}

/// Steps that need each other in a circle, each the one after it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cycle(pub(crate) Vec<usize>);

impl Graph {
    /// One step that needs nothing.
    pub(crate) fn single() -> Self {
        Self {
            needs: vec![Vec::new()],
            standing: vec![Standing::Waiting],
        }
    }

    /// Steps that need those of the given numbers.
    pub(crate) fn new(needs: Vec<Vec<usize>>) -> Result<Self, Cycle> {
        let standing = vec![Standing::Waiting; needs.len()];
        let graph = Self { needs, standing };
        let mut state = vec![Visit::Unseen; graph.needs.len()];
        for step in 0..graph.needs.len() {
            graph.visit(step, &mut state, &mut Vec::new())?;
        }
        Ok(graph)
    }

    fn visit(&self, step: usize, state: &mut [Visit], path: &mut Vec<usize>) -> Result<(), Cycle> {
        match state[step] {
            Visit::Left => return Ok(()),
            Visit::Entered => {
                let begin = path.iter().position(|on| *on == step).unwrap_or(0);
                return Err(Cycle(path[begin..].to_vec()));
            }
            Visit::Unseen => {}
        }
        state[step] = Visit::Entered;
        path.push(step);
        for need in &self.needs[step] {
            self.visit(*need, state, path)?;
        }
        path.pop();
        state[step] = Visit::Left;
        Ok(())
    }

    /// The steps that may run now, in the order of their numbers.
    pub(crate) fn ready(&self) -> Vec<usize> {
        let is_ready = |step: &usize| {
            self.standing[*step] == Standing::Waiting
                && self.needs[*step]
                    .iter()
                    .all(|need| self.standing[*need] == Standing::Done)
        };
        (0..self.needs.len()).filter(is_ready).collect()
    }

    /// Notes where a step stands. What needs a step that failed is not reached any more.
    pub(crate) fn set(&mut self, step: usize, standing: Standing) {
        self.standing[step] = standing;
        let mut is_new = matches!(standing, Standing::Failed | Standing::NotReached);
        while is_new {
            is_new = false;
            for step in 0..self.needs.len() {
                let is_cut_off = self.needs[step].iter().any(|need| {
                    matches!(
                        self.standing[*need],
                        Standing::Failed | Standing::NotReached
                    )
                });
                if self.standing[step] == Standing::Waiting && is_cut_off {
                    self.standing[step] = Standing::NotReached;
                    is_new = true;
                }
            }
        }
    }

    /// Takes every step that waits for not reached.
    pub(crate) fn stop(&mut self) {
        for standing in &mut self.standing {
            if *standing == Standing::Waiting {
                *standing = Standing::NotReached;
            }
        }
    }

    /// The steps that one needs itself.
    pub(crate) fn needs(&self, step: usize) -> &[usize] {
        &self.needs[step]
    }

    /// Every step that one needs, and what those need.
    pub(crate) fn ancestors(&self, step: usize) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let mut left = self.needs[step].clone();
        while let Some(next) = left.pop() {
            if found.insert(next) {
                left.extend(&self.needs[next]);
            }
        }
        found
    }
}

#[derive(Clone, Copy)]
enum Visit {
    Unseen,
    Entered,
    Left,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn independent_steps_are_ready_together() {
        let graph = Graph::new(vec![vec![], vec![], vec![0, 1]]).unwrap();
        assert_eq!(graph.ready(), [0, 1]);
    }

    #[test]
    fn a_step_is_ready_when_all_it_needs_is_done() {
        let mut graph = Graph::new(vec![vec![], vec![], vec![0, 1]]).unwrap();
        graph.set(0, Standing::Done);
        assert_eq!(graph.ready(), [1]);
        graph.set(1, Standing::Done);
        assert_eq!(graph.ready(), [2]);
    }

    #[test]
    fn what_needs_a_failed_step_is_not_reached_and_the_rest_is() {
        let mut graph = Graph::new(vec![vec![], vec![0], vec![1], vec![]]).unwrap();
        graph.set(0, Standing::Failed);
        assert_eq!(graph.ready(), [3]);
        graph.set(3, Standing::Done);
        assert!(graph.ready().is_empty());
    }

    #[test]
    fn a_circle_is_found_and_named() {
        let cycle = Graph::new(vec![vec![], vec![2], vec![3], vec![1]]).unwrap_err();
        assert_eq!(cycle, Cycle(vec![1, 2, 3]));
        assert_eq!(Graph::new(vec![vec![0]]).unwrap_err(), Cycle(vec![0]));
    }

    #[test]
    fn what_a_step_needs_is_found_through_others() {
        let graph = Graph::new(vec![vec![], vec![0], vec![1], vec![]]).unwrap();
        assert_eq!(graph.ancestors(2), BTreeSet::from([0, 1]));
    }
}
