#include "engine/comm/device/lanes/lane_book.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::engine {
namespace {

constexpr uint64_t kOpenBits = 64;  // of LaneOffer::open

constexpr uint32_t Bit(int lane) { return uint32_t{1} << lane; }

// Whether the offer says that the follower's ring `number` is closed. 0: there is none.
bool IsClosed(const LaneOffer& offer, uint64_t number) {
  if (number == 0) return true;
  if (number >= offer.number) return false;  // the offer is older than that
  const uint64_t back = offer.number - 1 - number;
  return back < kOpenBits ? (offer.open >> back & 1) == 0 : offer.older_open == 0;
}

uint64_t NewBook() {
  std::random_device random;
  return (uint64_t{random()} << 32 | random()) | 1;
}

}  // namespace

LaneBook::LaneBook(std::shared_ptr<LaneMaker> maker, bool leads, std::atomic<uint64_t>* made)
    : maker_(std::move(maker)), leads_(leads), book_(NewBook()), made_(made) {}

LaneOffer LaneBook::Offer() {
  const std::lock_guard lock(mutex_);
  LaneOffer offer{.book = book_, .number = next_number_++};
  for (const uint64_t number : open_) {
    const uint64_t back = offer.number - 1 - number;
    if (back < kOpenBits) offer.open |= uint64_t{1} << back;
    if (back >= kOpenBits) offer.older_open = 1;
  }
  open_.insert(offer.number);
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    offer.lanes[i] = {slot.generation, slot.sent, slot.received, slot.lane != nullptr, slot.leased};
  }
  return offer;
}

absl::StatusOr<LaneLease> LaneBook::Grant(const LaneOffer& offer, LaneGrant* grant) {
  std::vector<std::unique_ptr<Lane>> dropped;  // destroyed when the lock is free
  const std::lock_guard lock(mutex_);
  Hear(offer);
  int found = kLanesMax;
  std::vector<int> empty;
  for (int i = 0; i < kLanesMax; ++i) {
    Slot& slot = slots_[i];
    const LaneOffer::State& offered = latest_.lanes[i];
    if (!MayJudge(i)) continue;
    if (IsWhole(offered, &slot)) {
      found = std::min(found, i);
      continue;
    }
    slot.generation = std::max(slot.generation, offered.generation);
    dropped.push_back(std::move(slot.lane));
    grant->drops |= Bit(i);
    empty.push_back(i);
  }
  absl::StatusOr<int> lane = found;
  if (found == kLanesMax) lane = MakeLanes(offer, empty, grant);
  for (size_t i = 0; i < slots_.size(); ++i) grant->generations[i] = slots_[i].generation;
  if (!lane.ok()) return lane.status();
  grant->lane = static_cast<uint32_t>(*lane);
  slots_[*lane].leased = true;
  slots_[*lane].holder = offer.number;
  return LaneLease{*lane, grant->makes, 0};
}

// Keeps the latest offer. What was granted to another book at the other end, or to none, is over
// there.
void LaneBook::Hear(const LaneOffer& offer) {
  const bool same = latest_.book == offer.book;
  if (!same || offer.number > latest_.number) latest_ = offer;
  if (same) return;
  for (Slot& slot : slots_) slot.holder = slot.made_for = 0;
}

// Whether the latest offer tells how the lane is at the other end, now and until a grant arrives
// there.
bool LaneBook::MayJudge(int lane) const {
  const Slot& slot = slots_[lane];
  const LaneOffer::State& offered = latest_.lanes[lane];
  if (slot.leased || offered.leased != 0 || !IsClosed(latest_, slot.holder)) return false;
  return offered.generation >= slot.generation || IsClosed(latest_, slot.made_for);
}

bool LaneBook::IsWhole(const LaneOffer::State& offered, Slot* slot) {
  return slot->lane != nullptr && offered.there != 0 && offered.generation == slot->generation &&
         offered.sent == slot->received && offered.received == slot->sent &&
         slot->lane->Done().ok();
}

// The first of the lanes that it makes.
absl::StatusOr<int> LaneBook::MakeLanes(const LaneOffer& offer, const std::vector<int>& empty,
                                        LaneGrant* grant) {
  if (empty.empty()) {
    return absl::UnavailableError(absl::StrCat(maker_->Name(), ": more than ", kRingsAtOnce,
                                               " rings with one other instance are open at once"));
  }
  const size_t count = any_made_ ? 1 : kLanesAtFirst;
  for (size_t i = 0; i < std::min(count, empty.size()); ++i) {
    const int lane = empty[i];
    const absl::StatusOr<LaneKey> key = maker_->NewKey();
    const absl::Status made =
        key.ok() ? MakeLane(lane, slots_[lane].generation + 1, *key) : key.status();
    if (!made.ok()) {
      grant->makes = 0;
      return made;
    }
    slots_[lane].holder = 0;
    slots_[lane].made_for = offer.number;
    grant->makes |= Bit(lane);
    grant->keys[lane] = *key;
  }
  any_made_ = true;
  return empty[0];
}

absl::Status LaneBook::MakeLane(int lane, uint64_t generation, const LaneKey& key) {
  absl::StatusOr<std::unique_ptr<Lane>> made = maker_->Make(key, leads_ ? 0 : 1);
  if (!made.ok()) return made.status();
  ++*made_;
  Slot& slot = slots_[lane];
  slot.lane = *std::move(made);
  slot.generation = generation;
  slot.sent = slot.received = 0;
  return absl::OkStatus();
}

absl::Status LaneBook::Differ(int lane, uint64_t here, uint64_t there) const {
  return absl::InternalError(absl::StrCat(maker_->Name(), ": lane ", lane, " has generation ", here,
                                          slots_[lane].leased ? ", in use," : "", " here, ", there,
                                          " at the other end"));
}

absl::StatusOr<LaneLease> LaneBook::Accept(const LaneOffer& offer, const LaneGrant& grant) {
  std::vector<std::unique_ptr<Lane>> dropped;  // destroyed when the lock is free
  const std::lock_guard lock(mutex_);
  for (int i = 0; i < kLanesMax; ++i) {
    Slot& slot = slots_[i];
    const bool makes = (grant.makes & Bit(i)) != 0;
    if (makes && (slot.leased || slot.generation >= grant.generations[i])) {
      return Differ(i, slot.generation, grant.generations[i]);
    }
    const bool drops = (grant.drops & Bit(i)) != 0 && slot.generation <= grant.generations[i];
    if ((makes || drops) && !slot.leased) dropped.push_back(std::move(slot.lane));
    if (!makes) continue;
    const absl::Status made = MakeLane(i, grant.generations[i], grant.keys[i]);
    if (!made.ok()) return made;
  }
  if (grant.lane >= kLanesMax) {
    return absl::UnavailableError(absl::StrCat(maker_->Name(),
                                               ": the other end granted no lane (all ", kLanesMax,
                                               " are in use, or none can be made)"));
  }
  const int lane = static_cast<int>(grant.lane);
  Slot& slot = slots_[lane];
  // By the end of the ring that made it, while it was still being made.
  if (slot.lane == nullptr) {
    return absl::UnavailableError(
        absl::StrCat(maker_->Name(), ": lane ", lane, " was broken off after the offer was sent"));
  }
  if (slot.leased || slot.generation != grant.generations[lane]) {
    return Differ(lane, slot.generation, grant.generations[lane]);
  }
  slot.leased = true;
  return LaneLease{lane, grant.makes, offer.number};
}

absl::StatusOr<bool> LaneBook::Made(const LaneLease& lease) {
  const std::lock_guard lock(mutex_);
  for (int i = 0; i < kLanesMax; ++i) {
    const bool other = (lease.makes & Bit(i)) != 0 && !slots_[i].leased && slots_[i].lane;
    if (i != lease.lane && !other) continue;
    const absl::StatusOr<bool> made = slots_[i].lane->Done();
    if (!made.ok() || !*made) return made;
  }
  return true;
}

absl::Status LaneBook::Start(const LaneLease& lease, std::span<const LaneMessage> messages) {
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_[lease.lane];
  for (const LaneMessage& message : messages) ++(message.outgoing ? slot.sent : slot.received);
  return slot.lane->Start(messages);
}

absl::StatusOr<bool> LaneBook::Done(const LaneLease& lease) {
  const std::lock_guard lock(mutex_);
  return slots_[lease.lane].lane->Done();
}

void LaneBook::End(const LaneLease& lease) {
  std::vector<std::unique_ptr<Lane>> dropped;  // destroyed when the lock is free
  const std::lock_guard lock(mutex_);
  open_.erase(lease.number);
  for (int i = 0; i < kLanesMax; ++i) {
    Slot& slot = slots_[i];
    const bool other = (lease.makes & Bit(i)) != 0 && !slot.leased;
    if (i != lease.lane && !other) continue;
    slot.leased = slot.leased && i != lease.lane;
    if (slot.lane == nullptr) continue;
    const absl::StatusOr<bool> done = slot.lane->Done();
    if (!done.ok() || !*done) dropped.push_back(std::move(slot.lane));
  }
}

}  // namespace skein::engine
