#include "engine/handoff/handoff_sender.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/handoff/layout_map.h"

namespace skein::engine {
namespace {

// Of the receiver, as far as counts of blocks go.
int64_t RanksOf(const HandoffGrant& grant) {
  return grant.staging_slots > 0 ? 1 : std::ssize(grant.targets);
}

// Ascending, and all of them blocks of the prompt.
bool IsShare(std::span<const HandoffBlock> blocks, int64_t prompt_blocks) {
  int64_t next = 0;
  for (const HandoffBlock& block : blocks) {
    if (block.global < next) return false;
    next = block.global + 1;
  }
  return next <= prompt_blocks;
}

}  // namespace

HandoffSender::HandoffSender(Transport* transport, const KvSpec& spec,
                             std::vector<RegionId> local_regions,
                             std::chrono::nanoseconds put_timeout, HandoffEnds ends,
                             size_t peers_max)
    : transport_(transport),
      spec_(spec),
      local_regions_(std::move(local_regions)),
      put_timeout_(put_timeout),
      ends_(std::move(ends)),
      peers_(transport, peers_max) {
  SKEIN_CHECK(static_cast<int>(local_regions_.size()) == spec_.num_layers);
}

void HandoffSender::Open(HandoffKey key, std::vector<int32_t> local_blocks, int64_t prompt_tokens) {
  SKEIN_CHECK(static_cast<int64_t>(local_blocks.size()) ==
              BlocksOfLayout(spec_, {1}, prompt_tokens));
  std::vector<HandoffBlock> blocks;
  blocks.reserve(local_blocks.size());
  for (const int32_t local : local_blocks) {
    blocks.push_back({local, static_cast<int64_t>(blocks.size())});
  }
  OpenShare(key, std::move(blocks), prompt_tokens);
}

void HandoffSender::OpenShare(HandoffKey key, std::vector<HandoffBlock> blocks,
                              int64_t prompt_tokens, bool more) {
  SKEIN_CHECK(IsShare(blocks, BlocksOfLayout(spec_, {1}, prompt_tokens)));
  std::lock_guard lock(mu_);
  Handoff& handoff = handoffs_[key];
  SKEIN_CHECK_MSG(!handoff.granted, "the key's last handoff has not ended");
  handoff = {.blocks = std::move(blocks), .more = more, .prompt_tokens = prompt_tokens};
  handoff.layers.resize(static_cast<size_t>(spec_.num_layers));
}

void HandoffSender::Add(HandoffKey key, std::span<const HandoffBlock> blocks, bool more) {
  {
    std::lock_guard lock(mu_);
    const auto it = handoffs_.find(key);
    if (it == handoffs_.end()) return;
    Handoff& handoff = it->second;
    SKEIN_CHECK_MSG(handoff.more, "the share was complete");
    handoff.blocks.insert(handoff.blocks.end(), blocks.begin(), blocks.end());
    SKEIN_CHECK(IsShare(handoff.blocks, BlocksOfLayout(spec_, {1}, handoff.prompt_tokens)));
    handoff.more = more;
  }
  transport_->Wake();
}

void HandoffSender::Written(HandoffKey key, int layer, int64_t token_end) {
  {
    std::lock_guard lock(mu_);
    const auto it = handoffs_.find(key);
    if (it == handoffs_.end()) return;
    int64_t& written = it->second.layers[static_cast<size_t>(layer)].written_tokens;
    written = std::max(written, token_end);
    if (!it->second.granted) return;
  }
  transport_->Wake();
}

// The last block of the prompt may stay partly filled; every other one is put when it is full.
int64_t HandoffSender::WrittenBlocks(const Handoff& handoff, int layer) const {
  const int64_t written = handoff.layers[static_cast<size_t>(layer)].written_tokens;
  const auto end = std::partition_point(
      handoff.blocks.begin(), handoff.blocks.end(), [&](const HandoffBlock& block) {
        return std::min((block.global + 1) * spec_.block_tokens, handoff.prompt_tokens) <= written;
      });
  return end - handoff.blocks.begin();
}

void HandoffSender::Grant(HandoffKey key, HandoffGrant grant) {
  {
    std::lock_guard lock(mu_);
    const auto it = handoffs_.find(key);
    SKEIN_CHECK_MSG(it != handoffs_.end(), "granted before it was opened");
    Handoff& handoff = it->second;
    handoff.granted = true;
    handoff.grant = std::move(grant);
    if (absl::Status status = Connect(&handoff); !status.ok()) Fail(&handoff, std::move(status));
  }
  transport_->Wake();
}

absl::Status HandoffSender::CheckGrant(const Handoff& handoff) const {
  const HandoffGrant& grant = handoff.grant;
  const KvLayout layout{static_cast<int>(grant.targets.size())};
  if (grant.staging_slots > 0) {
    if (layout.tp > 1) return absl::FailedPreconditionError("layout: a staged grant of many ranks");
    const bool comes = ends_.waits != nullptr && ends_.idle != nullptr;
    if (layout.tp == 0 && !comes) return absl::FailedPreconditionError("staging: no buffer");
    if (ends_.part == nullptr) return absl::FailedPreconditionError("staging: not taken here");
    return absl::OkStatus();
  }
  if (absl::Status status = CheckLayout(spec_, layout); !status.ok()) return status;
  const int64_t need = BlocksOfLayout(spec_, layout, handoff.prompt_tokens);
  for (const HandoffTarget& target : grant.targets) {
    if (static_cast<int64_t>(target.blocks.size()) == need) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("blocks: granted ", target.blocks.size(), ", need ", need));
  }
  return absl::OkStatus();
}

absl::Status HandoffSender::Connect(Handoff* handoff) {
  if (absl::Status status = CheckGrant(*handoff); !status.ok()) return status;
  const HandoffGrant& grant = handoff->grant;
  for (Layer& layer : handoff->layers) {
    layer.posted_blocks.assign(static_cast<size_t>(RanksOf(grant)), 0);
  }
  const bool staged = grant.staging_slots > 0;
  for (const HandoffTarget& target : grant.targets) {
    absl::Status status = ConnectTo(target.memory, staged ? 1 : local_regions_.size(), handoff);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status HandoffSender::ConnectTo(const std::string& memory, size_t regions, Handoff* handoff) {
  absl::StatusOr<Peer> peer = peers_.Acquire(memory, handoff->grant.peer);
  if (!peer.ok()) return peer.status();
  const size_t granted = peer->regions.size();
  handoff->peers.push_back(*std::move(peer));
  if (granted != regions) {
    return absl::FailedPreconditionError(
        absl::StrCat("layers: granted memory has ", granted, " regions, need ", regions));
  }
  const int32_t slots = handoff->grant.staging_slots;
  if (slots == 0) return absl::OkStatus();
  handoff->has_buffer = true;
  handoff->used = std::chrono::steady_clock::now();
  for (int32_t slot = slots - 1; slot >= 0; --slot) handoff->free_slots.push_back(slot);
  return absl::OkStatus();
}

void HandoffSender::Extend(HandoffKey key, std::chrono::steady_clock::time_point post_until) {
  std::lock_guard lock(mu_);
  const auto it = handoffs_.find(key);
  if (it == handoffs_.end()) return;
  it->second.grant.post_until = std::max(it->second.grant.post_until, post_until);
}

void HandoffSender::Stop(HandoffKey key) {
  {
    std::lock_guard lock(mu_);
    const auto it = handoffs_.find(key);
    if (it == handoffs_.end() || it->second.verdict != Verdict::kOpen) return;
    it->second.verdict = Verdict::kStopped;
    for (const auto& [id, flight] : flights_) {
      if (flight.key == key) transport_->Cancel(id);
    }
  }
  transport_->Wake();
}

void HandoffSender::Discard(HandoffKey key) {
  std::lock_guard lock(mu_);
  const auto it = handoffs_.find(key);
  if (it != handoffs_.end() && !it->second.granted) handoffs_.erase(it);
}

void HandoffSender::Fail(Handoff* handoff, absl::Status status) {
  if (handoff->verdict != Verdict::kOpen) return;
  handoff->verdict = Verdict::kFailed;
  handoff->failure = std::move(status);
}

void HandoffSender::PostReady(HandoffKey key, Handoff* handoff, News* news) {
  if (!handoff->granted || handoff->verdict != Verdict::kOpen) return;
  const bool over = std::chrono::steady_clock::now() >= handoff->grant.post_until;
  const int ranks = static_cast<int>(RanksOf(handoff->grant));
  for (int layer = 0; layer < spec_.num_layers; ++layer) {
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<int64_t>& posted =
          handoff->layers[static_cast<size_t>(layer)].posted_blocks;
      if (posted[static_cast<size_t>(rank)] == WrittenBlocks(*handoff, layer)) continue;
      if (over) {
        return Fail(handoff, absl::DeadlineExceededError("the lease of the grant is over"));
      }
      if (handoff->grant.staging_slots > 0) {
        if (handoff->has_buffer) {
          PostStaged(key, handoff);
        } else if (!std::exchange(handoff->waits, true)) {
          news->waits.push_back(key);
        }
        return;
      }
      if (!PostLayer(key, handoff, layer, rank)) return;
    }
  }
}

bool HandoffSender::PostLayer(HandoffKey key, Handoff* handoff, int layer, int rank) {
  const int64_t block_bytes = spec_.BlockBytes();
  const KvLayout layout{static_cast<int>(handoff->peers.size())};
  const std::vector<int32_t>& remote = handoff->grant.targets[static_cast<size_t>(rank)].blocks;
  int64_t& posted =
      handoff->layers[static_cast<size_t>(layer)].posted_blocks[static_cast<size_t>(rank)];
  const int64_t last = WrittenBlocks(*handoff, layer);
  std::vector<TransferPiece> pieces;
  for (int64_t i = posted; i < last; ++i) {
    const HandoffBlock& block = handoff->blocks[static_cast<size_t>(i)];
    const int64_t to =
        remote[static_cast<size_t>(TargetBlock(spec_, layout, block.global))] * block_bytes;
    for (const LayoutPiece& piece : MapBlock(spec_, layout, rank, block.global)) {
      pieces.push_back(
          {.local = local_regions_[static_cast<size_t>(layer)],
           .local_offset = static_cast<uint64_t>(block.local * block_bytes + piece.source_offset),
           .remote = handoff->peers[static_cast<size_t>(rank)].regions[static_cast<size_t>(layer)],
           .remote_offset = static_cast<uint64_t>(to + piece.target_offset),
           .bytes = static_cast<uint64_t>(piece.bytes)});
    }
  }
  if (!Post(handoff, rank, pieces, {.key = key, .layer = layer, .blocks = last - posted})) {
    return false;
  }
  posted = last;
  return true;
}

bool HandoffSender::Post(Handoff* handoff, int rank, std::span<const TransferPiece> pieces,
                         Flight flight) {
  absl::StatusOr<TransferId> id = transport_->Post(handoff->peers[static_cast<size_t>(rank)].id,
                                                   TransferOp::kPut, pieces, put_timeout_);
  if (absl::IsResourceExhausted(id.status())) return false;
  if (!id.ok()) {
    Fail(handoff, id.status());
    return false;
  }
  flights_[*id] = std::move(flight);
  ++handoff->in_flight;
  return true;
}

void HandoffSender::Complete(const TransferCompletion& completion, News* news) {
  const auto it = flights_.find(completion.id);
  SKEIN_CHECK_MSG(it != flights_.end(), "a completion of a transfer that was not posted");
  Flight flight = std::move(it->second);
  flights_.erase(it);
  const auto found = handoffs_.find(flight.key);
  SKEIN_CHECK_MSG(found != handoffs_.end(), "a handoff went before its transfers");
  Handoff& handoff = found->second;
  --handoff.in_flight;
  if (!completion.status.ok()) {
    if (handoff.verdict != Verdict::kOpen) return;
    Fail(&handoff, completion.status);
    for (const auto& [id, other] : flights_) {
      if (other.key == flight.key) transport_->Cancel(id);
    }
  } else if (flight.staged.empty()) {
    handoff.layers[static_cast<size_t>(flight.layer)].done_blocks += flight.blocks;
  } else if (handoff.verdict == Verdict::kOpen) {
    handoff.untaken.insert(handoff.untaken.end(), flight.staged.begin(), flight.staged.end());
    news->parts.push_back({flight.key, std::move(flight.staged)});
  }
}

bool HandoffSender::Over(const Handoff& handoff) const {
  if (!handoff.granted || handoff.in_flight > 0) return false;
  if (handoff.verdict != Verdict::kOpen) return true;
  const int64_t want = std::ssize(handoff.blocks) * RanksOf(handoff.grant);
  return !handoff.more &&
         std::all_of(handoff.layers.begin(), handoff.layers.end(),
                     [want](const Layer& layer) { return layer.done_blocks == want; });
}

std::vector<int64_t> HandoffSender::BytesOf(const Handoff& handoff) const {
  std::vector<int64_t> bytes;
  for (const Layer& layer : handoff.layers) {
    const int64_t ranks = std::max<int64_t>(1, RanksOf(handoff.grant));
    bytes.push_back(layer.done_blocks * spec_.BlockBytes() / ranks);
  }
  return bytes;
}

void HandoffSender::CollectEnds(News* news) {
  for (auto it = handoffs_.begin(); it != handoffs_.end();) {
    Handoff& handoff = it->second;
    if (!Over(handoff)) {
      ++it;
      continue;
    }
    news->ends.push_back({it->first, handoff.verdict, handoff.failure, BytesOf(handoff)});
    ReleasePeers(&handoff);
    it = handoffs_.erase(it);
  }
}

void HandoffSender::Pump(std::chrono::nanoseconds wait) {
  News news;
  {
    std::lock_guard lock(mu_);
    for (auto& [key, handoff] : handoffs_) PostReady(key, &handoff, &news);
    // What is over without transfers under way ends now, not after the wait.
    for (const auto& [key, handoff] : handoffs_) {
      wait = Over(handoff) ? std::chrono::nanoseconds() : std::min(wait, UntilIdle(handoff));
    }
    if (!news.waits.empty()) wait = {};
  }
  std::vector<TransferCompletion> completions;
  transport_->Poll(64, wait, &completions);
  {
    std::lock_guard lock(mu_);
    for (const TransferCompletion& completion : completions) Complete(completion, &news);
    CollectIdle(&news);
    CollectEnds(&news);
  }
  Tell(&news);
}

void HandoffSender::Tell(News* news) const {
  for (const HandoffKey key : news->waits) ends_.waits(key);
  for (Part& part : news->parts) ends_.part(part.key, std::move(part.blocks));
  for (const HandoffKey key : news->idle) ends_.idle(key);
  for (End& end : news->ends) {
    if (end.verdict == Verdict::kStopped) {
      ends_.stopped(end.key);
    } else if (end.verdict == Verdict::kFailed) {
      ends_.failed(end.key, end.failure);
    } else {
      ends_.done(end.key, std::move(end.bytes));
    }
  }
}

void HandoffSender::ReleasePeers(Handoff* handoff) {
  for (const Peer& peer : handoff->peers) peers_.Release(peer.id);
  handoff->peers.clear();
}

void HandoffSender::DropGonePeers() {
  std::lock_guard lock(mu_);
  peers_.DropBroken();
}

std::vector<HandoffTotals> HandoffSender::Totals() const {
  std::lock_guard lock(mu_);
  return peers_.Totals();
}

}  // namespace skein::engine
