// HandoffSender: moves the KV of prompts from this instance's blocks into the blocks granted at a
// decode instance, layer by layer while later layers compute (design.md section 7; Tetris
// section 4.2, the send manager).
//
// Life of a handoff: Open -> Written (from the engine thread, each layer of each chunk) and Grant
// (in any order) -> one end: done, failed or stopped. A block is put whole and once, when its last
// token of the prompt is written.
//
// Threads. All methods may be called from any thread; Pump is called by one thread, the transport's
// progress thread. Callbacks run on that thread, without locks held, exactly one per Open + Grant.
//
// Safety. Nothing is posted after `post_until`, and a put posted shortly before ends within
// `put_timeout` after it: the receiving side frees the blocks no sooner than lease + grace, with
// grace > put_timeout. Local blocks may be reused as soon as the end was called back.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/kv/kv_spec.h"
#include "engine/transport/transport.h"

namespace skein::engine {

// Names one handoff; the caller packs what it likes into it (request id and epoch).
struct HandoffKey {
  uint64_t a = 0;
  uint64_t b = 0;
  uint64_t c = 0;
  auto operator<=>(const HandoffKey&) const = default;
};

// What the decode side granted.
struct HandoffGrant {
  std::vector<int32_t> remote_blocks;  // one per local block, in token order
  std::string memory;                  // Transport::Describe of the decode side: one region a layer
  std::chrono::steady_clock::time_point post_until;
};

struct HandoffEnds {
  std::function<void(HandoffKey, std::vector<int64_t> bytes_per_layer)> done;
  std::function<void(HandoffKey, absl::Status)> failed;
  std::function<void(HandoffKey)> stopped;
};

// What was moved so far to one peer, for logs and metrics.
struct HandoffTotals {
  std::string lanes;  // the transport's name for what carries the bytes
  uint64_t bytes = 0;
  double busy_seconds = 0;
};

class HandoffSender {
 public:
  // `transport` outlives the sender. `local_regions[l]` holds layer l's blocks.
  HandoffSender(Transport* transport, const KvSpec& spec, std::vector<RegionId> local_regions,
                std::chrono::nanoseconds put_timeout, HandoffEnds ends);

  // A prompt of `prompt_tokens` tokens in `local_blocks` is about to be computed. Opening a key
  // again replaces it. REQUIRES: the old one has ended.
  void Open(HandoffKey key, std::vector<int32_t> local_blocks, int64_t prompt_tokens);

  // Tokens up to `token_end` of `layer` are written. Unknown keys are ignored. Does not block.
  void Written(HandoffKey key, int layer, int64_t token_end);

  // The receiver is ready. From here on exactly one of `ends` is called for `key`. REQUIRES:
  // opened.
  void Grant(HandoffKey key, HandoffGrant grant);

  // The lease was renewed. Unknown keys are ignored.
  void Extend(HandoffKey key, std::chrono::steady_clock::time_point post_until);

  // Post nothing more; `stopped` is called when nothing is under way. A handoff whose end has been
  // decided already ignores it.
  void Stop(HandoffKey key);

  // Forgets a handoff that was never granted. Unknown keys are ignored.
  void Discard(HandoffKey key);

  // Posts what is ready, drives the transport for at most `wait`, calls ends back.
  void Pump(std::chrono::nanoseconds wait);

  // By peer, of ended handoffs.
  std::vector<HandoffTotals> Totals() const;

 private:
  enum class Verdict { kOpen, kFailed, kStopped };

  struct Handoff {
    std::vector<int32_t> local_blocks;
    int64_t prompt_tokens = 0;
    std::vector<int64_t> written_blocks;  // by layer: blocks complete in local memory
    std::vector<int64_t> posted_blocks;   // by layer: handed to the transport
    std::vector<int64_t> done_bytes;      // by layer
    bool granted = false;
    HandoffGrant grant;
    Peer peer;
    int in_flight = 0;
    Verdict verdict = Verdict::kOpen;
    absl::Status failure;
  };
  struct Flight {
    HandoffKey key;
    int layer = 0;
    int64_t bytes = 0;
  };
  struct End {
    HandoffKey key;
    Verdict verdict;
    absl::Status failure;
    std::vector<int64_t> bytes;
  };

  void Connect(Handoff* handoff);
  void Fail(Handoff* handoff, absl::Status status);
  void PostReady(HandoffKey key, Handoff* handoff);
  // False when the transport is full for now.
  bool PostLayer(HandoffKey key, Handoff* handoff, int layer);
  void Complete(const TransferCompletion& completion);
  bool AllDone(const Handoff& handoff) const;
  void CollectEnds(std::vector<End>* ends);

  Transport* const transport_;
  const KvSpec spec_;
  const std::vector<RegionId> local_regions_;
  const std::chrono::nanoseconds put_timeout_;
  const HandoffEnds ends_;

  mutable std::mutex mu_;
  std::map<HandoffKey, Handoff> handoffs_;
  std::map<TransferId, Flight> flights_;
  std::map<PeerId, int> peers_;  // seen, for Totals
};

}  // namespace skein::engine
