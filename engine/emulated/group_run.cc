#include "engine/emulated/group_run.h"

#include <chrono>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/emulated/emulated_sampling.h"
#include "engine/emulated/pace.h"
#include "engine/emulated/tagged_sequence.h"
#include "engine/model/forward/step_check.h"
#include "engine/model/group/step_agreement.h"

namespace skein::engine {
namespace {

ShardRange HeadsAt(const KvSpec& kv, int ranks, int rank) {
  return KvHeadsOf({kv.kv_heads, kv.kv_heads, kv.head_dim, 0, 0}, ranks, rank);
}

}  // namespace

GroupRun::GroupRun(const EngineSpec& spec, std::span<const KvRegion> regions,
                   const EmulatedTimes& times, int64_t digest_tokens, const GroupPart& part,
                   std::span<const SequenceStep> sequences)
    : spec_(spec),
      regions_(regions),
      times_(times),
      digest_tokens_(digest_tokens),
      part_(part),
      sequences_(sequences) {}

absl::Status GroupRun::CheckPart() const {
  if (part_.all == nullptr) return absl::InvalidArgumentError("all: missing");
  const int ranks = part_.all->Size();
  if (part_.mode.sp < 1 || part_.mode.tp < 1 || part_.mode.ranks() != ranks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "mode: sp = ", part_.mode.sp, ", tp = ", part_.mode.tp, " in a group of ", ranks));
  }
  if (FitsHeads(KvLayout{ranks}, spec_.kv)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "all.size = ", ranks, ": must divide kv_heads = ", spec_.kv.kv_heads, " or the reverse"));
}

absl::Status GroupRun::Run(StepProgress* progress, std::vector<SequenceResult>* results) {
  absl::Status status = CheckPart();
  if (!status.ok()) return status;
  const int ranks = part_.all->Size();
  const int64_t tokens_max = std::numeric_limits<int64_t>::max();
  status = CheckStep(sequences_, spec_, tokens_max, KvLayout{ranks}, results);
  if (!status.ok()) return status;
  status = AgreeOnStep(part_, sequences_, *results, spec_, /*key_segment=*/0);
  if (!status.ok() || !AnyRuns(*results)) return status;
  status = StepError(RunAgreed(progress, results));
  if (!status.ok()) AbortGroup(part_, status);
  return status;
}

absl::Status GroupRun::RunAgreed(StepProgress* progress, std::vector<SequenceResult>* results) {
  const auto start = std::chrono::steady_clock::now();
  const int ranks = part_.all->Size(), layers = spec_.kv.num_layers;
  const TaggedMemory memory(&spec_.kv, regions_, KvLayout{ranks},
                            HeadsAt(spec_.kv, ranks, part_.all->Rank()));
  const double seconds = StepSeconds(times_, part_.mode.sp, part_.mode.tp, sequences_, *results);
  std::vector<std::pair<size_t, std::vector<uint64_t>>> running;  // index, links
  for (size_t i = 0; i < sequences_.size(); ++i) {
    if ((*results)[i].status.ok()) running.emplace_back(i, LinksOfStep(memory, sequences_[i]));
  }
  for (int layer = 0; layer < layers; ++layer) {
    for (const auto& [i, links] : running) WriteTags(memory, sequences_[i], layer, links);
    if (progress != nullptr) progress->Queue(layer, nullptr);
    // As a device's collectives: no rank is more than a layer ahead, and one that is gone is seen.
    const absl::Status met = part_.all->AllGather({}, {}, part_.deadline);
    if (!met.ok()) return met;
    SleepUntil(PartOf(start, seconds, layer + 1, layers));
  }
  return Answer(results);
}

absl::Status GroupRun::Answer(std::vector<SequenceResult>* results) const {
  const int ranks = part_.all->Size();
  const TaggedMemory memory(&spec_.kv, regions_, KvLayout{ranks},
                            HeadsAt(spec_.kv, ranks, part_.all->Rank()));
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const SequenceStep& sequence = sequences_[i];
    if (!(*results)[i].status.ok()) continue;
    if (sequence.next_tokens.empty() && !sequence.sample) continue;
    const auto joined = JoinHeads(ChainsOfStep(memory, digest_tokens_, sequence));
    if (!joined.ok()) return joined.status();
    AnswerEmulated(sequence, spec_.vocab_size, *joined, &(*results)[i]);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint64_t>> GroupRun::JoinHeads(const std::vector<uint64_t>& mine) const {
  const auto ranks = static_cast<size_t>(part_.all->Size());
  std::vector<uint64_t> all(ranks * mine.size());
  const absl::Status gathered = part_.all->AllGather(
      std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)), part_.deadline);
  if (!gathered.ok()) return gathered;
  const auto own = static_cast<size_t>(HeadsAt(spec_.kv, static_cast<int>(ranks), 0).count);
  std::vector<uint64_t> joined;
  for (size_t token = 0; token < mine.size() / own; ++token) {
    std::vector<uint64_t> chains(static_cast<size_t>(spec_.kv.kv_heads));
    std::vector<bool> known(chains.size());
    for (size_t rank = 0; rank < ranks; ++rank) {
      const ShardRange heads = HeadsAt(spec_.kv, static_cast<int>(ranks), static_cast<int>(rank));
      for (size_t h = 0; h < own; ++h) {
        const size_t head = static_cast<size_t>(heads.begin) + h;
        const uint64_t chain = all[(rank * mine.size()) + token * own + h];
        if (known[head] && chains[head] != chain) {
          chains[head] = Fold(chains[head], chain);  // its holders disagree
        } else {
          chains[head] = chain;
        }
        known[head] = true;
      }
    }
    joined.push_back(JoinChains(chains));
  }
  return joined;
}

}  // namespace skein::engine
