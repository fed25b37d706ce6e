#include "scheduler/worker/prefill/kept_prompts.h"

#include <algorithm>
#include <utility>

namespace skein::scheduler {

BlockTable KeptPrompts::Remove(RequestId first) {
  const auto it = entries_.find(first);
  if (it == entries_.end()) return nullptr;
  BlockTable blocks = std::move(it->second.blocks);
  blocks_ -= static_cast<int64_t>(blocks->size());
  order_.erase(it->second.number);
  entries_.erase(it);
  return blocks;
}

BlockTable KeptPrompts::Keep(const SpecPtr& spec, BlockTable blocks, TimeUs until_us) {
  const RequestId first = spec->id.First();
  BlockTable replaced = Remove(first);
  blocks_ += static_cast<int64_t>(blocks->size());
  order_[++last_number_] = first;
  entries_[first] = {last_number_, spec, std::move(blocks), until_us};
  return replaced;
}

BlockTable KeptPrompts::Find(const RequestSpec& spec) const {
  const auto it = entries_.find(spec.id.First());
  if (it == entries_.end()) return nullptr;
  const RequestSpec& kept = *it->second.spec;
  const bool begins_with = kept.model == spec.model && kept.prompt.size() <= spec.prompt.size() &&
                           std::equal(kept.prompt.begin(), kept.prompt.end(), spec.prompt.begin());
  return begins_with ? it->second.blocks : nullptr;
}

int64_t KeptPrompts::TokensFor(const RequestSpec& spec) const {
  return PromptTokens(*entries_.at(spec.id.First()).spec);
}

void KeptPrompts::Take(const RequestSpec& spec) { Remove(spec.id.First()); }

BlockTable KeptPrompts::GiveUpOldest(RequestId but) {
  for (const auto& [number, first] : order_) {
    if (first != but.First()) return Remove(RequestId(first));
  }
  return nullptr;
}

BlockTable KeptPrompts::TakeOverdue(TimeUs now) {
  return now >= NextDeadline() ? Remove(RequestId(order_.begin()->second)) : nullptr;
}

TimeUs KeptPrompts::NextDeadline() const {
  return order_.empty() ? kNever : entries_.at(order_.begin()->second).until_us;
}

absl::Status KeptPrompts::CheckInvariants() const {
  int64_t blocks = 0;
  for (const auto& [first, entry] : entries_) {
    blocks += static_cast<int64_t>(entry.blocks->size());
    const auto it = order_.find(entry.number);
    if (it == order_.end() || it->second != first) {
      return absl::InternalError("KeptPrompts: a prompt is not in the order of its number");
    }
  }
  if (blocks != blocks_) return absl::InternalError("KeptPrompts: blocks are miscounted");
  if (entries_.size() == order_.size()) return absl::OkStatus();
  return absl::InternalError("KeptPrompts: a prompt that is not kept has a number");
}

}  // namespace skein::scheduler
