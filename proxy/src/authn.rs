//! Who is asking: the run and step named by the token, or by the door.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use broker::TokenError;
use sdk::Code;

use crate::core::Core;
use crate::principal::Principal;
use crate::refusal::Refusal;

/// The run that the values of `Proxy-Authorization` name.
pub(crate) fn identify<'h>(
    core: &Arc<Core>,
    values: impl Iterator<Item = &'h [u8]>,
) -> Result<Arc<Principal>, Refusal> {
    let token = token(values)?.ok_or_else(|| Refusal::new(Code::TokenMissing))?;
    let run = core.broker.authenticate(&token).map_err(refusal)?;
    let step = run.token_step().cloned();
    if step.is_none() && run.policy().steps().next().is_some() {
        // Whose of the steps' rights would be meant? All of them would be more than any step has.
        let hint =
            "the policy gives steps rights of their own, so a token for one step is needed here";
        return Err(Refusal::with_hint(Code::WrongDoor, hint));
    }
    core.principal(run, step)
}

/// Checks what comes through the door of a run or of one of its steps: no token, or one of that run that is not for
/// another step.
pub(crate) fn confirm<'h>(
    core: &Core,
    door: &Principal,
    values: impl Iterator<Item = &'h [u8]>,
) -> Result<(), Refusal> {
    let Some(token) = token(values)? else {
        return Ok(());
    };
    let run = core.broker.authenticate(&token).map_err(refusal)?;
    let is_of_another_step = run.token_step().is_some() && run.token_step() != door.step();
    if run.id() != door.run().id() || is_of_another_step {
        return Err(Refusal::new(Code::WrongDoor));
    }
    Ok(())
}

/// The token in the only `Proxy-Authorization`, if there is one.
fn token<'h>(mut values: impl Iterator<Item = &'h [u8]>) -> Result<Option<Cow<'h, [u8]>>, Refusal> {
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(Refusal::new(Code::TokenInvalid));
    }
    let invalid = || Refusal::new(Code::TokenInvalid);
    let space = value
        .iter()
        .position(|byte| *byte == b' ')
        .ok_or_else(invalid)?;
    let (scheme, rest) = (&value[..space], value[space..].trim_ascii());
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return Ok(Some(Cow::Borrowed(rest)));
    }
    if scheme.eq_ignore_ascii_case(b"basic") {
        let mut pair = STANDARD.decode(rest).map_err(|_| invalid())?;
        let password = pair.strip_prefix(USER).ok_or_else(invalid)?.len();
        pair.drain(..pair.len() - password);
        return Ok(Some(Cow::Owned(pair)));
    }
    Err(invalid())
}

fn refusal(error: TokenError) -> Refusal {
    Refusal::new(match error {
        TokenError::Invalid => Code::TokenInvalid,
        TokenError::Expired => Code::TokenExpired,
        TokenError::Ended => Code::RunEnded,
    })
}

const USER: &[u8] = b"run:";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[&str]) -> Result<Option<Vec<u8>>, Code> {
        token(values.iter().map(|value| value.as_bytes()))
            .map(|token| token.map(Cow::into_owned))
            .map_err(|refusal| refusal.code)
    }

    #[test]
    fn bearer_and_basic_carry_the_same_token() {
        let token = Some(b"a.b.c".to_vec());
        assert_eq!(read(&["Bearer a.b.c"]), Ok(token.clone()));
        assert_eq!(read(&["bearer  a.b.c "]), Ok(token.clone()));
        assert_eq!(read(&["Basic cnVuOmEuYi5j"]), Ok(token));
        assert_eq!(read(&[]), Ok(None));
    }

    #[test]
    fn two_tokens_are_none() {
        assert_eq!(read(&["Bearer a", "Bearer b"]), Err(Code::TokenInvalid));
    }

    #[test]
    fn another_user_or_scheme_is_refused() {
        for value in [
            "Basic b3RoZXI6YS5iLmM=",
            "Digest x",
            "Bearer",
            "",
            "Basic !",
        ] {
            assert_eq!(read(&[value]), Err(Code::TokenInvalid), "{value}");
        }
    }
}
