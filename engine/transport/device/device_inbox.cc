#include "engine/transport/device/device_inbox.h"

#include <cstring>
#include <utility>
#include <vector>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr size_t kSlotsOfPuts = 96;
constexpr size_t kSlotsOfGets = 32;

}  // namespace

DeviceInbox::DeviceInbox(std::shared_ptr<CopyStream> copies, size_t message_bytes)
    : copies_(copies), slots_(std::move(copies), message_bytes, kSlotsOfPuts + kSlotsOfGets) {}

bool DeviceInbox::Done(uint64_t mark) {
  const absl::StatusOr<bool> done = copies_->Done(mark);
  if (!done.ok()) failed_ = true;
  return !done.ok() || *done;
}

// Frees the slots whose copies are done.
void DeviceInbox::Reclaim() {
  while (!puts_.empty() && Done(puts_.front().mark)) {
    slots_.GiveBack(puts_.front().slot);
    puts_.pop_front();
  }
}

absl::StatusOr<std::byte*> DeviceInbox::SlotForPut() {
  if (puts_.size() >= kSlotsOfPuts) (void)AwaitMark(copies_.get(), puts_.front().mark);
  Reclaim();
  return slots_.Take();
}

absl::StatusOr<uint64_t> DeviceInbox::Put(std::span<const Place> places,
                                          std::span<const std::byte> data) {
  SKEIN_CHECK(data.size() <= slots_.slot_bytes());
  const absl::StatusOr<std::byte*> slot = SlotForPut();
  if (!slot.ok()) return slot.status();
  SKEIN_CHECK(*slot != nullptr);
  std::memcpy(*slot, data.data(), data.size());
  std::vector<CopyPiece> pieces;
  const std::byte* from = *slot;
  for (const Place& place : places) {
    pieces.push_back({place.to, from, place.bytes});
    from += place.bytes;
  }
  absl::Status status = copies_->CopyPieces(pieces);
  const absl::StatusOr<uint64_t> mark = copies_->Mark();
  if (status.ok()) status = mark.status();
  if (!status.ok()) {
    failed_ = true;
    Drain();
    slots_.GiveBack(*slot);
    return status;
  }
  puts_.push_back({*mark, *slot});
  return *mark;
}

absl::StatusOr<DeviceInbox::Fetched> DeviceInbox::Get(const std::byte* from, size_t bytes) {
  SKEIN_CHECK(bytes <= slots_.slot_bytes());
  if (gets_ >= kSlotsOfGets) return Fetched{};
  const absl::StatusOr<std::byte*> slot = slots_.Take();
  if (!slot.ok()) return slot.status();
  ++gets_;
  absl::Status status = copies_->Copy(*slot, from, bytes);
  const absl::StatusOr<uint64_t> mark = copies_->Mark();
  if (status.ok()) status = mark.status();
  if (!status.ok()) {
    Drain();
    GiveBack(*slot);
    return status;
  }
  return Fetched{*slot, *mark};
}

void DeviceInbox::GiveBack(std::byte* slot) {
  --gets_;
  slots_.GiveBack(slot);
}

}  // namespace skein::engine
