// The decode side of handshake_bench, a process: a decode-worker's own service in front of a KV
// pool in the transport's memory, and a receiver with staging buffers over the same pool.
#pragma once

#include "engine/kv/kv_spec.h"

namespace skein::bench {

// The shape that both sides agree on.
struct HandshakeShape {
  engine::KvSpec kv;  // num_blocks: the prompt's
  int writers_max = 4;
  int slots = 0;  // of a staging buffer, a block each
};

// Serves on a port of 127.0.0.1, which it writes to `out` as four bytes, until the process is
// killed.
[[noreturn]] void RunHandshakeTarget(const HandshakeShape& shape, int out);

}  // namespace skein::bench
