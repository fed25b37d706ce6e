#include "engine/emulated/ring_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/emulated/emulated_sampling.h"
#include "engine/emulated/pace.h"
#include "engine/emulated/tags.h"
#include "engine/model/ring/ring_check.h"
#include "engine/parallel/step_digest.h"
#include "scheduler/vocabulary/mix64.h"

namespace skein::engine {
namespace {

constexpr double kSliceSeconds = 0.1;
constexpr uint64_t kPoison = 0xbadbadbadbadbad1u;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A collective that did not succeed leaves the device as good as before.
absl::Status OfCollective(const absl::Status& status) {
  if (absl::IsInternal(status)) {  // calls or tags that differ
    return absl::InvalidArgumentError(absl::StrCat(
        "ring: the ranks were given other steps or models: ", std::string(status.message())));
  }
  if (status.ok() || absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) return status;
  return absl::UnavailableError(status.message());
}

std::vector<int32_t> KnownTokens(const SequenceStep& sequence) {
  std::vector<int32_t> tokens(sequence.prompt.begin(), sequence.prompt.end());
  tokens.insert(tokens.end(), sequence.output.begin(), sequence.output.end());
  return tokens;
}

template <typename T>
std::span<const std::byte> BytesOfVector(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}

}  // namespace

RingRun::RingRun(const EngineSpec& spec, std::span<const KvRegion> regions,
                 const EmulatedTimes& times, int64_t digest_tokens, const SequenceStep& sequence)
    : spec_(spec),
      memory_(&spec.kv, regions),
      digest_tokens_(digest_tokens),
      sequence_(sequence),
      step_(*sequence.ring),
      rank_(step_.comm == nullptr ? 0 : step_.comm->Rank()),
      size_(step_.comm == nullptr ? 1 : step_.comm->Size()) {
  for (const RankShare& share : step_.shares) {
    history_tokens_ += share.history_tokens;
    for (const TokenSpan& span : share.spans) tokens_ += span.count;
  }
  if (times.prefill_s != nullptr)
    seconds_ = times.prefill_s(size_, step_.tp, history_tokens_, tokens_);
}

absl::Status RingRun::Run(StepProgress* progress, SequenceResult* result) {
  result->status = Check();
  if (!result->status.ok()) {
    AbortRefused(step_, result->status);
    return absl::OkStatus();
  }
  absl::Status status = Meet();
  if (status.ok()) status = RunMet(progress, result);
  if (!status.ok()) AbortRingStep({&sequence_, 1}, status);
  return status;
}

absl::Status RingRun::RunMet(StepProgress* progress, SequenceResult* result) {
  absl::Status status;
  start_ = std::chrono::steady_clock::now();
  for (int layer = 0; status.ok() && !poisoned_ && layer < spec_.kv.num_layers; ++layer) {
    status = Move(layer);
  }
  if (status.ok() && !poisoned_) status = CompareHistory();
  if (!status.ok()) return status;
  if (sequence_.sample || !sequence_.next_tokens.empty()) Answer(result);
  for (int layer = 0; layer < spec_.kv.num_layers; ++layer) {
    Write(layer);
    if (status = Sleep(layer); !status.ok()) return status;
    if (progress != nullptr) progress->Queue(layer, nullptr);
  }
  return OfCollective(MeetAtEnd(step_));
}

absl::Status RingRun::Check() const {
  const absl::Status checked = CheckRingStep(sequence_, spec_, RingLimits{});
  if (!checked.ok()) return checked;
  const std::vector<int32_t> known = KnownTokens(sequence_);
  if (history_tokens_ + tokens_ > static_cast<int64_t>(known.size())) {
    return absl::InvalidArgumentError(absl::StrCat("prompt: ", known.size(), " tokens"));
  }
  size_t next = 0;
  for (const TokenSpan& span : step_.shares[static_cast<size_t>(rank_)].spans) {
    for (int64_t i = 0; i < span.count; ++i, ++next) {
      const int32_t token = known[static_cast<size_t>(span.position + i)];
      if (sequence_.tokens[next] == token) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "tokens[", next, "] = ", sequence_.tokens[next], ": the prompt's is ", token));
    }
  }
  return absl::OkStatus();
}

// Of what all ranks must have been given alike.
uint64_t RingRun::Signature() const {
  const uint64_t digest = DigestOfRing(sequence_, spec_, /*key_segment=*/0, /*segment_blocks=*/0);
  return Fold(digest, static_cast<uint64_t>(seconds_ * 1e9));
}

absl::Status RingRun::Gather(Communicator* group, std::span<const std::byte> mine,
                             std::vector<std::byte>* all) const {
  all->resize(mine.size() * static_cast<size_t>(group->Size()));
  return OfCollective(group->AllGather(mine, *all, step_.deadline));
}

absl::Status RingRun::Meet() {
  std::vector<int32_t> known = KnownTokens(sequence_);
  known.resize(static_cast<size_t>(history_tokens_ + tokens_));
  links_ = LinksOf(known);
  if (step_.comm == nullptr) return absl::OkStatus();
  const uint64_t signature = Signature();
  TagRing(step_, signature);
  const absl::Status met = OfCollective(step_.comm->AllGather({}, {}, step_.deadline));
  return met.ok() ? MeetTensorGroup() : met;
}

absl::Status RingRun::MeetTensorGroup() const {
  if (step_.tensor == nullptr) return absl::OkStatus();
  const std::vector<int32_t> mine = {rank_};
  std::vector<std::byte> bytes;
  absl::Status status = Gather(step_.tensor, BytesOfVector(mine), &bytes);
  if (!status.ok()) return status;
  std::vector<int32_t> all(static_cast<size_t>(step_.tp));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  for (int i = 0; i < step_.tp; ++i) {
    const int32_t rank = all[static_cast<size_t>(i)];
    if (rank == rank_ / step_.tp * step_.tp + i) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("ring.tensor: its rank ", i, " is rank ", rank, " of the step"));
  }
  return absl::OkStatus();
}

absl::Status RingRun::Move(int layer) {
  if (step_.moves == nullptr) return absl::OkStatus();
  const auto block_bytes = static_cast<size_t>(spec_.kv.BlockBytes());
  const auto ranks = static_cast<size_t>(size_);
  std::vector<std::vector<std::byte>> out(ranks), in(ranks);
  std::vector<std::span<const std::byte>> send(ranks);
  std::vector<std::span<std::byte>> receive(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    if (!step_.send.empty()) {
      for (const int32_t block : NumbersOf(step_.send[r])) {
        const std::byte* from = memory_.Block(layer, block);
        out[r].insert(out[r].end(), from, from + block_bytes);
      }
    }
    if (!step_.receive.empty()) in[r].resize(step_.receive[r].size() * block_bytes);
    send[r] = out[r];
    receive[r] = in[r];
  }
  const absl::Status status = step_.moves->AllToAll(send, receive, step_.deadline);
  if (!status.ok()) return OfCollective(status);
  for (size_t r = 0; r < step_.receive.size(); ++r) {
    for (size_t i = 0; i < step_.receive[r].size(); ++i) {
      std::memcpy(memory_.Block(layer, step_.receive[r][i].value), in[r].data() + i * block_bytes,
                  block_bytes);
    }
  }
  return absl::OkStatus();
}

std::vector<int32_t> RingRun::KnownHistory() const {
  const int64_t block_tokens = spec_.kv.block_tokens;
  std::unordered_map<uint64_t, int32_t> starts;
  for (int64_t at = 0; at < history_tokens_; at += block_tokens) {
    starts.emplace(links_[static_cast<size_t>(at)], static_cast<int32_t>(at / block_tokens));
  }
  std::vector<int32_t> known;
  for (const int32_t block : NumbersOf(step_.history_blocks)) {
    const auto start = starts.find(*memory_.Words(0, block, 0, 0, 0));
    if (start == starts.end()) return {};
    if (!known.empty() && start->second <= known.back()) return {};
    for (int64_t slot = 0; slot < block_tokens; ++slot) {
      const int64_t position = start->second * block_tokens + slot;
      if (!memory_.HoldsToken(block, slot, links_[static_cast<size_t>(position)])) return {};
    }
    known.push_back(start->second);
  }
  return known;
}

absl::Status RingRun::CompareHistory() {
  size_t longest = 0;
  for (const RankShare& share : step_.shares) {
    longest = std::max(longest, static_cast<size_t>(share.history_tokens / spec_.kv.block_tokens));
  }
  if (longest == 0) return absl::OkStatus();
  std::vector<int32_t> mine = KnownHistory();
  mine.resize(longest, -1);
  std::vector<int32_t> all = mine;
  if (step_.comm != nullptr) {
    std::vector<std::byte> bytes;
    if (absl::Status status = Gather(step_.comm, BytesOfVector(mine), &bytes); !status.ok())
      return status;
    all.resize(bytes.size() / sizeof(int32_t));
    std::memcpy(all.data(), bytes.data(), bytes.size());
  }
  std::vector<int> held(static_cast<size_t>(history_tokens_ / spec_.kv.block_tokens), 0);
  for (const int32_t global : all) {
    if (global >= 0) ++held[static_cast<size_t>(global)];
  }
  poisoned_ |= std::any_of(held.begin(), held.end(), [](int count) { return count != 1; });
  return absl::OkStatus();
}

uint64_t RingRun::LinkAt(int64_t position) const {
  const uint64_t link = links_[static_cast<size_t>(position)];
  return poisoned_ ? Mix64(link ^ kPoison) : link;
}

void RingRun::Write(int layer) const {
  const int64_t block_tokens = spec_.kv.block_tokens;
  size_t first_block = 0;
  for (const TokenSpan& span : step_.shares[static_cast<size_t>(rank_)].spans) {
    for (int64_t i = 0; i < span.count; ++i) {
      const int32_t block =
          sequence_.block_table[first_block + static_cast<size_t>(i / block_tokens)];
      memory_.WriteToken(layer, block, i % block_tokens, LinkAt(span.position + i));
    }
    first_block += static_cast<size_t>(CeilDiv(span.count, block_tokens));
  }
}

void RingRun::Answer(SequenceResult* result) const {
  std::vector<uint64_t> digests;  // after each position of the prompt so far
  std::vector<uint64_t> chains(static_cast<size_t>(spec_.kv.kv_heads));
  for (int64_t position = 0; position < history_tokens_ + tokens_; ++position) {
    if (BeginsDigest(position, digest_tokens_)) chains.assign(chains.size(), 0);
    FoldToken(spec_.kv, LinkAt(position), chains);
    digests.push_back(JoinChains(chains));
  }
  std::vector<uint64_t> mine;
  for (const TokenSpan& span : step_.shares[static_cast<size_t>(rank_)].spans) {
    const auto first = digests.begin() + span.position;
    mine.insert(mine.end(), first, first + span.count);
  }
  AnswerEmulated(sequence_, spec_.vocab_size, mine, result);
}

absl::Status RingRun::Sleep(int layer) {
  const int layers = spec_.kv.num_layers;
  const auto slices =
      std::max<int64_t>(1, static_cast<int64_t>(std::ceil(seconds_ / layers / kSliceSeconds)));
  for (int64_t slice = 1; slice <= slices; ++slice) {
    const auto until = PartOf(start_, seconds_, layer * slices + slice, layers * slices);
    SleepUntil(std::min(until, step_.deadline));
    if (until > step_.deadline) return absl::DeadlineExceededError("the step's deadline");
    const bool last = layer + 1 == layers && slice == slices;
    if (seconds_ == 0 || last || step_.comm == nullptr) continue;
    std::vector<std::byte> all;
    const std::byte word{1};
    if (absl::Status status = Gather(step_.comm, {&word, 1}, &all); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace skein::engine
