// Whether a place to listen at is free; the socket library does not say, or not in time.
#pragma once

#include <string>

#include "transport/endpoint.h"

namespace capstan {

// 0 if nobody listens at the path, otherwise an errno: EADDRINUSE, or EEXIST for a file that is not a socket.
// The library would take the path from a living server.
int IpcPathInUse(const std::string& path);

// Waits, at most half a second, until a tcp endpoint of ours that was closed can be bound again: the library
// closes listeners a little later, on one of its threads.
void AwaitPortReleased(const Endpoint& endpoint);

}  // namespace capstan
