// HandoffSender: moves the KV of prompts from this instance's blocks into the blocks granted at a
// decode instance, layer by layer while later layers compute (Tetris section 4.2, the send
// manager; engine/README.md). What is put when is decided by PutSchedule (put_schedule.h); this
// class connects the peers, makes the puts on a Transport, and knows the clock and the threads.
//
// Life of a handoff: Open -> Written (from the engine thread, each layer of each chunk) and Grant
// (in any order) -> one end: done, failed or stopped. A block is put whole and once, when its last
// token of the prompt is written.
//
// Many to many. Several instances may each put a share of one prompt's blocks, and the
// receiver may be a group of TP ranks with a memory and a block table each: a block then becomes
// pieces for all of them (layout_map.h). Bytes are counted as the source has them: a block is
// BlockBytes() per layer, whatever the receiver's layout, so that all writers' add up to the
// prompt's.
//
// Two ways of receiving. One-sided: puts go straight into the granted blocks. Staged (a receiver
// that has no registered blocks, Tetris section 4.2's limited backends): puts go into the slots of
// one staging buffer; each part that arrived is told to the caller (`part`), who tells the
// receiver, which copies it out; Taken then frees the part's slots for the next. A grant without a
// buffer says when it needs one (`waits`, answered with UseBuffer) and when it has had nothing to
// put for a while (`idle`: the buffer is not touched any more).
//
// Threads. All methods may be called from any thread; Pump is called by one thread, the transport's
// progress thread. Callbacks run on that thread, without locks held, exactly one end per Open +
// Grant.
//
// Safety. Puts are made under the grant of the receiver's description (transport.h: Grants), which
// the receiver closes before the blocks serve another: a late put fails the handoff and reaches
// nothing. Nothing is posted after `post_until`. Local blocks may be reused as soon as the end was
// called back.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "engine/handoff/handoff_peers.h"
#include "engine/handoff/put_schedule.h"
#include "engine/kv/kv_spec.h"
#include "engine/transport/transport.h"
#include "scheduler/vocabulary/block_id.h"
#include "scheduler/vocabulary/handoff_block.h"
#include "scheduler/vocabulary/staged_block.h"

namespace skein::engine {

// One rank of the receiver.
struct HandoffTarget {
  std::vector<BlockId> blocks;  // of the whole prompt, in token order (BlocksOfLayout many)
  std::string memory;           // DescribeUnder a grant, of that rank's memory: one region a layer
};

// The decode side's grant.
struct HandoffGrant {
  std::vector<HandoffTarget> targets;  // by rank of the receiver's layout: as many as its tp
  std::chrono::steady_clock::time_point post_until;
  // > 0: staged, to one region of so many slots of a block each. It comes with UseBuffer, or now:
  // as the memory of one target without blocks.
  int32_t staging_slots = 0;
  // Staged: when it has had nothing to put for so long, the buffer is given back.
  std::chrono::nanoseconds idle_after = std::chrono::nanoseconds::max();
  std::string peer;  // the receiver's name, for HandoffTotals
};

struct HandoffEnds {
  std::function<void(HandoffKey, std::vector<int64_t> bytes_per_layer)> done;
  std::function<void(HandoffKey, absl::Status)> failed;
  std::function<void(HandoffKey)> stopped;
  // Staged only, no end: these blocks lie in their slots. Answered with Taken.
  std::function<void(HandoffKey, std::vector<StagedBlock>)> part = nullptr;
  // Staged only, no ends. Something is to be put and there is no buffer: once until UseBuffer.
  std::function<void(HandoffKey)> waits = nullptr;
  // Nothing is under way and the buffer is not used any more: the next one is waited for.
  std::function<void(HandoffKey)> idle = nullptr;
  // No end: just before `done`, how the bytes went. Of several ranks: of one with the slower path.
  std::function<void(HandoffKey, const PeerInfo&)> carried = nullptr;
};

class HandoffSender {
 public:
  // The progress thread is woken each time a block has gained this many bytes of KV, and at a
  // step's last layer. Small layers are sent several at a time.
  static constexpr int64_t kWakeBytes = 64 << 10;
  // Peers that stay connected without a handoff: fewer than the transport allows, more than a
  // prefill instance meets within a few minutes.
  static constexpr size_t kPeersMax = 960;

  // `transport` outlives the sender. `local_regions[l]` holds layer l's blocks.
  HandoffSender(Transport* transport, const KvSpec& spec, std::vector<RegionId> local_regions,
                std::chrono::nanoseconds put_timeout, HandoffEnds ends,
                size_t peers_max = kPeersMax);

  // `blocks` of a prompt of `prompt_tokens` tokens (ascending; none is fine) are about to be
  // computed here. `more`: Add will bring further ones; until the last of them the handoff is not
  // done. Opening a key again replaces it. REQUIRES: the old one has ended.
  void Open(HandoffKey key, std::vector<HandoffBlock> blocks, int64_t prompt_tokens,
            bool more = false);

  // Further blocks of an open handoff, behind those it has and not computed yet. Unknown keys are
  // ignored.
  void Add(HandoffKey key, std::span<const HandoffBlock> blocks, bool more);

  // This instance's blocks of `layer` are written up to `token_end`, a position in the prompt: of
  // the tokens before it, none is still to be computed HERE. Unknown keys are ignored. Waits
  // for nothing but a Pump that closes a connection: up to 1.5 s if UCX's RMA has puts under way to
  // a peer that stands still (Transport::Disconnect). Called by the thread that pumps, it wakes
  // nobody: the next Pump takes it.
  void Written(HandoffKey key, int layer, int64_t token_end);
  // Whether the progress thread is woken when this layer is written: see kWakeBytes.
  bool WakesFor(int layer) const;

  // The receiver is ready. From here on exactly one of `ends` is called for `key`. REQUIRES:
  // opened.
  void Grant(HandoffKey key, HandoffGrant grant);

  // The lease was renewed. Unknown keys are ignored.
  void Extend(HandoffKey key, std::chrono::steady_clock::time_point post_until);

  // Staged: `memory`, a description of one region, is the handoff's buffer. Unknown keys and
  // handoffs that have one are ignored.
  void UseBuffer(HandoffKey key, const std::string& memory);

  // Staged: the receiver copied the blocks of these slots out (OK), or never will. Unknown keys are
  // ignored.
  void Taken(HandoffKey key, std::span<const int32_t> slots, const absl::Status& status);

  // Posts nothing more, and calls `stopped` when nothing is under way. A handoff whose end has been
  // decided ignores this.
  void Stop(HandoffKey key);

  // Forgets a handoff that was never granted. Unknown keys are ignored.
  void Discard(HandoffKey key);

  // Posts what is ready, drives the transport for at most `wait`, calls ends back.
  void Pump(std::chrono::nanoseconds wait);

  // Disconnects peers that died since their last handoff. To be called now and then.
  void DropGonePeers();

  // What ended handoffs moved, by peer.
  std::vector<HandoffTotals> Totals() const;

 private:
  // The targets of a handoff.
  struct Receiver {
    HandoffGrant grant;
    std::vector<Peer> peers;  // by rank; staged: of the buffer
  };

  absl::Status CheckGrant(const HandoffGrant& grant, int64_t prompt_tokens) const;
  absl::Status Connect(Receiver* receiver);
  absl::Status ConnectTo(const std::string& memory, Receiver* receiver);
  void ReleasePeers(Receiver* receiver);
  std::vector<TransferPiece> PiecesOf(const PutSchedule::Put& put, const Receiver& receiver) const;
  // Carries out the schedule's cancels, puts and ends. False: a put could not be made, and its
  // handoff has failed.
  bool Carry(const PutSchedule::Work& work);
  PeerInfo SlowestOf(const Receiver& receiver) const;
  void Tell(PutSchedule::Work* work);

  Transport* const transport_;
  const KvSpec spec_;
  const std::vector<RegionId> local_regions_;
  const std::chrono::nanoseconds put_timeout_;
  const HandoffEnds ends_;
  std::atomic<std::thread::id> pumps_{};  // the thread that does

  mutable std::mutex mu_;
  PutSchedule schedule_;
  std::map<HandoffKey, Receiver> receivers_;  // of those granted
  std::map<TransferId, uint64_t> puts_;       // under way: their numbers
  std::map<uint64_t, TransferId> transfers_;  // and back
  HandoffPeers peers_;
  std::map<HandoffKey, PeerInfo> carried_;  // only Pump: of ends that it has not told yet
};

}  // namespace skein::engine
