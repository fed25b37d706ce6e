#include "engine/handoff/handoff_sender.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"

namespace skein::engine {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

HandoffSender::HandoffSender(Transport* transport, const KvSpec& spec,
                             std::vector<RegionId> local_regions,
                             std::chrono::nanoseconds put_timeout, HandoffEnds ends)
    : transport_(transport),
      spec_(spec),
      local_regions_(std::move(local_regions)),
      put_timeout_(put_timeout),
      ends_(std::move(ends)) {
  SKEIN_CHECK(static_cast<int>(local_regions_.size()) == spec_.num_layers);
}

void HandoffSender::Open(HandoffKey key, std::vector<int32_t> local_blocks, int64_t prompt_tokens) {
  SKEIN_CHECK(static_cast<int64_t>(local_blocks.size()) ==
              CeilDiv(prompt_tokens, spec_.block_tokens));
  std::lock_guard lock(mu_);
  Handoff& handoff = handoffs_[key];
  SKEIN_CHECK_MSG(!handoff.granted, "the key's last handoff has not ended");
  handoff = {.local_blocks = std::move(local_blocks), .prompt_tokens = prompt_tokens};
  const auto layers = static_cast<size_t>(spec_.num_layers);
  handoff.written_blocks.assign(layers, 0);
  handoff.posted_blocks.assign(layers, 0);
  handoff.done_bytes.assign(layers, 0);
}

void HandoffSender::Written(HandoffKey key, int layer, int64_t token_end) {
  {
    std::lock_guard lock(mu_);
    const auto it = handoffs_.find(key);
    if (it == handoffs_.end()) return;
    Handoff& handoff = it->second;
    // The last block of the prompt may stay partly filled; every other one is put when it is full.
    const int64_t blocks = token_end >= handoff.prompt_tokens
                               ? static_cast<int64_t>(handoff.local_blocks.size())
                               : token_end / spec_.block_tokens;
    handoff.written_blocks[layer] = std::max(handoff.written_blocks[layer], blocks);
    if (!handoff.granted) return;
  }
  transport_->Wake();
}

void HandoffSender::Grant(HandoffKey key, HandoffGrant grant) {
  {
    std::lock_guard lock(mu_);
    const auto it = handoffs_.find(key);
    SKEIN_CHECK_MSG(it != handoffs_.end(), "granted before it was opened");
    Handoff& handoff = it->second;
    handoff.granted = true;
    handoff.grant = std::move(grant);
    Connect(&handoff);
  }
  transport_->Wake();
}

void HandoffSender::Connect(Handoff* handoff) {
  if (handoff->grant.remote_blocks.size() != handoff->local_blocks.size()) {
    return Fail(handoff, absl::FailedPreconditionError(
                             absl::StrCat("blocks: granted ", handoff->grant.remote_blocks.size(),
                                          ", need ", handoff->local_blocks.size())));
  }
  absl::StatusOr<Peer> peer = transport_->Connect(handoff->grant.memory);
  if (!peer.ok()) return Fail(handoff, peer.status());
  if (peer->regions.size() != local_regions_.size()) {
    return Fail(handoff, absl::FailedPreconditionError(
                             absl::StrCat("layers: granted memory has ", peer->regions.size(),
                                          " regions, need ", local_regions_.size())));
  }
  handoff->peer = *std::move(peer);
  ++peers_[handoff->peer.id];
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

void HandoffSender::PostReady(HandoffKey key, Handoff* handoff) {
  if (!handoff->granted || handoff->verdict != Verdict::kOpen) return;
  const bool over = std::chrono::steady_clock::now() >= handoff->grant.post_until;
  for (int layer = 0; layer < spec_.num_layers; ++layer) {
    if (handoff->posted_blocks[layer] == handoff->written_blocks[layer]) continue;
    if (over) {
      return Fail(handoff, absl::DeadlineExceededError("the lease of the grant is over"));
    }
    if (!PostLayer(key, handoff, layer)) return;
  }
}

bool HandoffSender::PostLayer(HandoffKey key, Handoff* handoff, int layer) {
  const int64_t block_bytes = spec_.BlockBytes();
  const int64_t first = handoff->posted_blocks[layer];
  const int64_t last = handoff->written_blocks[layer];
  std::vector<TransferPiece> pieces;
  pieces.reserve(static_cast<size_t>(last - first));
  for (int64_t i = first; i < last; ++i) {
    pieces.push_back(
        {.local = local_regions_[layer],
         .local_offset = static_cast<uint64_t>(handoff->local_blocks[i] * block_bytes),
         .remote = handoff->peer.regions[layer],
         .remote_offset = static_cast<uint64_t>(handoff->grant.remote_blocks[i] * block_bytes),
         .bytes = static_cast<uint64_t>(block_bytes)});
  }
  absl::StatusOr<TransferId> id =
      transport_->Post(handoff->peer.id, TransferOp::kPut, pieces, put_timeout_);
  if (absl::IsResourceExhausted(id.status())) return false;
  if (!id.ok()) {
    Fail(handoff, id.status());
    return false;
  }
  flights_[*id] = {key, layer, (last - first) * block_bytes};
  handoff->posted_blocks[layer] = last;
  ++handoff->in_flight;
  return true;
}

void HandoffSender::Complete(const TransferCompletion& completion) {
  const auto flight = flights_.find(completion.id);
  SKEIN_CHECK_MSG(flight != flights_.end(), "a completion of a transfer that was not posted");
  const auto it = handoffs_.find(flight->second.key);
  SKEIN_CHECK_MSG(it != handoffs_.end(), "a handoff went before its transfers");
  Handoff& handoff = it->second;
  --handoff.in_flight;
  if (completion.status.ok()) {
    handoff.done_bytes[flight->second.layer] += flight->second.bytes;
  } else if (handoff.verdict == Verdict::kOpen) {
    Fail(&handoff, completion.status);
    for (const auto& [id, other] : flights_) {
      if (other.key == flight->second.key && id != completion.id) transport_->Cancel(id);
    }
  }
  flights_.erase(flight);
}

bool HandoffSender::AllDone(const Handoff& handoff) const {
  const int64_t want = static_cast<int64_t>(handoff.local_blocks.size()) * spec_.BlockBytes();
  return std::all_of(handoff.done_bytes.begin(), handoff.done_bytes.end(),
                     [want](int64_t bytes) { return bytes == want; });
}

void HandoffSender::CollectEnds(std::vector<End>* ends) {
  for (auto it = handoffs_.begin(); it != handoffs_.end();) {
    Handoff& handoff = it->second;
    const bool over =
        handoff.in_flight == 0 && (handoff.verdict != Verdict::kOpen || AllDone(handoff));
    if (!handoff.granted || !over) {
      ++it;
      continue;
    }
    ends->push_back({it->first, handoff.verdict, handoff.failure, std::move(handoff.done_bytes)});
    it = handoffs_.erase(it);
  }
}

void HandoffSender::Pump(std::chrono::nanoseconds wait) {
  {
    std::lock_guard lock(mu_);
    for (auto& [key, handoff] : handoffs_) PostReady(key, &handoff);
    // A handoff that failed or stopped without transfers under way ends now, not after the wait.
    if (flights_.empty()) {
      for (const auto& [key, handoff] : handoffs_) {
        if (handoff.granted && handoff.verdict != Verdict::kOpen) wait = {};
      }
    }
  }
  std::vector<TransferCompletion> completions;
  transport_->Poll(64, wait, &completions);
  std::vector<End> ends;
  {
    std::lock_guard lock(mu_);
    for (const TransferCompletion& completion : completions) Complete(completion);
    CollectEnds(&ends);
  }
  for (End& end : ends) {
    if (end.verdict == Verdict::kStopped) {
      ends_.stopped(end.key);
    } else if (end.verdict == Verdict::kFailed) {
      ends_.failed(end.key, end.failure);
    } else {
      ends_.done(end.key, std::move(end.bytes));
    }
  }
}

std::vector<HandoffTotals> HandoffSender::Totals() const {
  std::lock_guard lock(mu_);
  std::vector<HandoffTotals> totals;
  for (const auto& [peer, count] : peers_) {
    const absl::StatusOr<PeerInfo> info = transport_->Inspect(peer);
    if (info.ok()) totals.push_back({info->lanes, info->put_bytes, info->busy_seconds});
  }
  return totals;
}

}  // namespace skein::engine
