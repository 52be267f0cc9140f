// Frames over TCP and Unix sockets, carried by ZeroMQ.
//
// On the wire a frame is one message of one or two parts: the 128-byte header and, if not empty, the body.
// Bodies are sent from the sender's buffer and read in the buffer they were received into; only bodies of up
// to 1 KiB are copied on arrival. A part declared larger than the body limit plus a little cuts its
// connection.
//
// The bytes that a peer may have in flight are counted by us; the library's own limits count messages. A peer
// that stops reading fills the sockets' buffers, then the sender's limit.
//
// Frames that Close could not send may still leave in the next two seconds: receivers must stand late frames
// from a node that ended, as from any network.
//
// Never fork without exec in a process that uses it. The library's threads live until the process ends.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace capstan {

// Raises the soft limit of open files to the hard one, once per process.
std::unique_ptr<Transport> NewZmqTransport(const TransportOptions& options);

}  // namespace capstan
