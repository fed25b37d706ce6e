#include "engine/comm/ucx/early_groups.h"

#include <string_view>

#include "absl/status/status.h"

namespace skein::engine {
namespace {

constexpr size_t kGroupsMax = 4096;
constexpr size_t kClosedMax = 1 << 16;

std::vector<std::byte> Copy(std::span<const std::byte> data) { return {data.begin(), data.end()}; }

// What the group's call gets to see in the place of messages that could not be kept.
EarlyGroups::Message Overflow(const WireHeader& header) {
  constexpr std::string_view kText = "more came before the group was made than can be kept";
  WireHeader abort{.group = header.group, .kind = WireKind::kAbort, .from = header.from};
  abort.bytes = static_cast<uint64_t>(absl::StatusCode::kUnavailable);
  return {abort, Copy(std::as_bytes(std::span(kText)))};
}

}  // namespace

void EarlyGroups::Keep(const WireHeader& header, std::span<const std::byte> data) {
  const auto [found, added] = groups_.try_emplace(header.group);
  Group& group = found->second;
  if (added) order_.push_back(header.group);
  if (group.broken) return;
  const bool ends = header.kind == WireKind::kAbort;
  const bool fits = bytes_ + sizeof(Message) + data.size() <= bytes_max_;
  if (ends || !fits) {  // nothing else about this group matters any more
    bytes_ -= group.bytes;
    group = {.messages = {}, .bytes = 0, .broken = true};
  }
  group.messages.push_back(ends || fits ? Message{header, Copy(data)} : Overflow(header));
  const size_t bytes = sizeof(Message) + group.messages.back().data.size();
  group.bytes += bytes;
  bytes_ += bytes;
  while (order_.size() > kGroupsMax) {
    Forget(order_.front());
    order_.pop_front();
  }
}

void EarlyGroups::Forget(const GroupDigest& key) {
  if (const auto found = groups_.extract(key); !found.empty()) bytes_ -= found.mapped().bytes;
}

std::vector<EarlyGroups::Message> EarlyGroups::Take(const GroupDigest& key) {
  auto found = groups_.extract(key);
  if (found.empty()) return {};
  bytes_ -= found.mapped().bytes;
  std::erase(order_, key);
  return std::move(found.mapped().messages);
}

void EarlyGroups::Close(const GroupDigest& key) {
  if (!closed_.insert(key).second) return;
  closed_order_.push_back(key);
  if (closed_order_.size() <= kClosedMax) return;
  closed_.erase(closed_order_.front());
  closed_order_.pop_front();
}

}  // namespace skein::engine
