//! Whether a refused host is refused now: asked before anything is served, and after each reload.

use std::sync::Arc;

use sdk::audit::{Event, EventKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::Error;
use crate::core::Core;
use crate::door::{self, Entrance};
use crate::stream::{Stream, Transport};

/// Asks, as a run with an empty policy, for a host that does not exist.
pub(crate) async fn refused(core: &Arc<Core>) -> Result<(), Error> {
    let broker = &core.broker;
    let failed = |error: broker::Error| Error::Broker(Box::new(error));
    let probe = broker.probe().map_err(failed)?;
    let principal = core
        .principal(Arc::clone(probe.run()), None)
        .map_err(|_| Error::ProbeNotRefused)?;
    let (mut client, server) = tokio::io::duplex(BUFFER);
    let stream = Stream::new(Transport::Memory(server));
    let serving = door::serve(Arc::clone(core), stream, Entrance::OfRun(principal));
    let asking = async {
        let mut answer = Vec::new();
        client.write_all(REQUEST).await?;
        client.read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let ((), answer) = tokio::join!(serving, asking);
    let is_refused = answer.is_ok_and(|answer| {
        answer.starts_with(b"HTTP/1.1 403 ")
            && answer.windows(CODE.len()).any(|window| window == CODE)
    });
    let mut event = Event::new(if is_refused {
        EventKind::ProbePassed
    } else {
        EventKind::ProbeFailed
    });
    event.run = Some(probe.run().id().clone());
    let written = broker.audit().append(&event).await;
    if is_refused && written.is_ok() {
        Ok(())
    } else {
        Err(Error::ProbeNotRefused)
    }
}

const REQUEST: &[u8] =
    b"GET http://probe.invalid/ HTTP/1.1\r\nHost: probe.invalid\r\nConnection: close\r\n\r\n";
const CODE: &[u8] = b"host-not-allowed";
const BUFFER: usize = 4096;
