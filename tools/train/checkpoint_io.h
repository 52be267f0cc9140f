// Gives a server its disk: the writers of its shards' checkpoints and the reader of the one it begins from.
#pragma once

#include "ps/server_node.h"

namespace capstan {

// Sets file_system, make_sink and open_source. The writers' program lies beside this one.
void AddCheckpoints(ServerOptions* options);

}  // namespace capstan
