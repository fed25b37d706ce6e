#include "engine/model/layers/slot_weights.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

// A fill is read in pieces of so many bytes, and one that nobody waits for ends between two.
constexpr int64_t kPieceBytes = 4 << 20;

// Bytes of one slot: any tile fits.
int64_t BytesOfSlot(const SlotOptions& options, const std::vector<FeedForwardWeights>& layers) {
  int64_t bytes = 0;
  for (size_t i = 0; i < options.places.size(); ++i) {
    if (options.places[i] != FeedForwardPlace::kSlot) continue;
    for (const FeedForwardTile& tile : TilesOf(layers[i], options.tile_bytes)) {
      bytes = std::max(bytes, tile.packed.bytes());
    }
  }
  return bytes;
}

int64_t SlotsOf(const SlotOptions& options, const std::vector<FeedForwardWeights>& layers) {
  int64_t tiles = 0;
  for (size_t i = 0; i < options.places.size(); ++i) {
    if (options.places[i] != FeedForwardPlace::kSlot) continue;
    tiles += static_cast<int64_t>(TilesOf(layers[i], options.tile_bytes).size());
  }
  return std::min<int64_t>(options.slots, tiles);
}

}  // namespace

int64_t SlotBytes(const SlotOptions& options, const std::vector<FeedForwardWeights>& layers) {
  const auto bytes = static_cast<size_t>(BytesOfSlot(options, layers));
  return SlotsOf(options, layers) * static_cast<int64_t>(DeviceBytes(bytes));
}

SlotWeights::SlotWeights(const ModelWeights* weights, const std::vector<FeedForwardWeights>& layers,
                         const SlotOptions& options, std::unique_ptr<FeedForwardReader> reader,
                         Device* device)
    : weights_(*weights), options_(options), reader_(std::move(reader)), device_(device) {
  std::vector<int> in_slots, counts;
  tiles_.resize(layers.size());
  first_.resize(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    if (options_.places[i] != FeedForwardPlace::kSlot) continue;
    tiles_[i] = TilesOf(layers[i], options_.tile_bytes);
    const auto layer = static_cast<int>(i), count = static_cast<int>(tiles_[i].size());
    first_[i] = static_cast<int64_t>(needed_.size());
    for (int tile = 0; tile < count; ++tile) needed_.push_back({layer, tile});
    in_slots.push_back(layer);
    counts.push_back(count);
  }
  if (!needed_.empty()) {
    order_.emplace(counts, in_slots, static_cast<int>(SlotsOf(options_, layers)), options_.rank,
                   options_.ranks);
  }
  if (!device->IsHost()) piece_.resize(kPieceBytes);
}

absl::StatusOr<std::unique_ptr<SlotWeights>> SlotWeights::Create(
    const ModelWeights* weights, const std::vector<FeedForwardWeights>& layers,
    const SlotOptions& options, std::unique_ptr<FeedForwardReader> reader, Device* device) {
  SKEIN_CHECK(options.places.size() == weights->layers.size());
  SKEIN_CHECK(layers.size() == weights->layers.size() && options.slots >= 1);
  std::unique_ptr<SlotWeights> made(
      new SlotWeights(weights, layers, options, std::move(reader), device));
  const auto bytes = static_cast<size_t>(BytesOfSlot(options, layers));
  for (int64_t i = SlotsOf(options, layers); i > 0; --i) {
    absl::StatusOr<DeviceBuffer> memory = DeviceBuffer::Allocate(device, bytes);
    if (!memory.ok()) return memory.status();
    made->slots_.emplace_back().memory = *std::move(memory);
  }
  if (!made->slots_.empty()) {
    made->filler_ = std::thread([source = made.get()] { source->FillSlots(); });
  }
  return made;
}

SlotWeights::~SlotWeights() {
  {
    std::lock_guard lock(mu_);
    stop_ = true;
  }
  changed_.notify_all();
  if (filler_.joinable()) filler_.join();
}

const LayerWeights& SlotWeights::Layer(int layer) {
  if (layer == 0 && order_.has_value()) {
    std::lock_guard lock(mu_);
    const int64_t tiles = order_->tiles();
    Seek((now_ + tiles - 1) / tiles * tiles);
    if (failed_) {
      for (Slot& slot : slots_) {
        if (slot.state == Slot::State::kFailed) Drop(slot);
      }
      position_ = order_->PositionBefore(now_);
      failed_ = false;
    }
    changed_.notify_all();
  }
  return weights_.layers[static_cast<size_t>(layer)];
}

int SlotWeights::Tiles(int layer) const {
  return std::max<int>(1, static_cast<int>(tiles_[static_cast<size_t>(layer)].size()));
}

absl::StatusOr<const FeedForwardWeights*> SlotWeights::FeedForward(int layer, int tile) {
  const auto i = static_cast<size_t>(layer);
  if (options_.places[i] == FeedForwardPlace::kHere) return &weights_.layers[i].feed_forward;
  if (options_.places[i] == FeedForwardPlace::kElsewhere) return nullptr;
  std::unique_lock lock(mu_);
  Seek(NumberFrom(now_, layer, tile));
  if (!ahead_) {
    asked_end_ = now_ - tile + Tiles(layer);
    changed_.notify_all();
  }
  Slot* slot = nullptr;
  const auto there = [&] {
    slot = Holder(now_);
    return slot != nullptr && slot->state != Slot::State::kFilling;
  };
  const auto until = std::chrono::steady_clock::now() + options_.wait_max;
  const std::string weights = absl::StrCat("layer ", layer, ": its feed-forward weights: ");
  // After a failure nothing more is read.
  const auto ended = [&] { return there() || (failed_ && slot == nullptr); };
  if (!changed_.wait_until(lock, until, ended)) {
    return absl::DeadlineExceededError(
        absl::StrCat(weights, "not read within ",
                     std::chrono::duration<double>(options_.wait_max).count(), " s"));
  }
  if (slot != nullptr && slot->state == Slot::State::kFull) return &slot->weights;
  if (slot == nullptr) {
    for (Slot& other : slots_) {
      if (other.state == Slot::State::kFailed) slot = &other;
    }
  }
  SKEIN_CHECK(slot != nullptr && slot->state == Slot::State::kFailed);
  const std::string failed = absl::StrCat("layer ", TileOf(slot->number).layer,
                                          ": its feed-forward weights: ", slot->error.message());
  return absl::Status(slot->error.code(), failed);
}

void SlotWeights::Used(int layer, int tile) {
  if (options_.places[static_cast<size_t>(layer)] != FeedForwardPlace::kSlot) return;
  std::lock_guard lock(mu_);
  const Tile& now = TileOf(now_);
  SKEIN_CHECK(now.layer == layer && now.index == tile && Holder(now_) != nullptr);
  Seek(now_ + 1);
}

void SlotWeights::ReadAhead(bool ahead) {
  std::lock_guard lock(mu_);
  if (ahead == ahead_ || !order_.has_value()) return;
  ahead_ = ahead;
  for (Slot& slot : slots_) Drop(slot);
  asked_end_ = now_;
  position_ = order_->PositionBefore(now_);
  changed_.notify_all();
}

const SlotWeights::Tile& SlotWeights::TileOf(int64_t number) const {
  return needed_[static_cast<size_t>(number % order_->tiles())];
}

int64_t SlotWeights::NumberFrom(int64_t from, int layer, int tile) const {
  const int64_t tiles = order_->tiles();
  const int64_t in_step = first_[static_cast<size_t>(layer)] + tile;
  const int64_t number = from / tiles * tiles + in_step;
  return number < from ? number + tiles : number;
}

SlotWeights::Slot* SlotWeights::Holder(int64_t number) {
  for (Slot& slot : slots_) {
    if (slot.state != Slot::State::kFree && !slot.dropped && slot.number == number) return &slot;
  }
  return nullptr;
}

void SlotWeights::Seek(int64_t number) {
  if (number == now_) return;
  now_ = number;
  for (Slot& slot : slots_) {
    if (slot.state != Slot::State::kFree && slot.number < now_) Drop(slot);
  }
  changed_.notify_all();
}

void SlotWeights::Drop(Slot& slot) {
  if (slot.state == Slot::State::kFailed) failed_ = false;
  if (slot.state == Slot::State::kFilling) {
    slot.dropped = true;  // its filler frees it
  } else {
    slot.state = Slot::State::kFree;
  }
}

std::optional<int64_t> SlotWeights::NextNumber() {
  if (failed_) return std::nullopt;
  if (!ahead_) {
    for (int64_t number = now_; number < asked_end_; ++number) {
      if (Holder(number) == nullptr) return number;
    }
    return std::nullopt;
  }
  // The positions before the window of the tile that is needed are of tiles that nobody needs.
  position_ = std::max(position_, order_->PositionBefore(now_));
  for (;; ++position_) {
    const int64_t number = order_->At(position_);
    if (number >= now_ && Holder(number) == nullptr) return number;
  }
}

SlotWeights::Slot* SlotWeights::NextToFill() {
  const auto free = std::find_if(slots_.begin(), slots_.end(),
                                 [](const Slot& slot) { return slot.state == Slot::State::kFree; });
  if (free == slots_.end()) return nullptr;
  const std::optional<int64_t> number = NextNumber();
  if (!number.has_value()) return nullptr;
  free->number = *number;
  return &*free;
}

void SlotWeights::FillSlots() {
  std::unique_lock lock(mu_);
  for (;;) {
    Slot* slot = nullptr;
    changed_.wait(lock, [&] { return stop_ || (slot = NextToFill()) != nullptr; });
    if (stop_) return;
    slot->state = Slot::State::kFilling;
    slot->dropped = false;
    lock.unlock();
    absl::Status filled = Fill(*slot);
    lock.lock();
    if (slot->dropped) {
      slot->state = Slot::State::kFree;
      slot->dropped = false;
    } else {
      failed_ = !filled.ok();
      slot->state = failed_ ? Slot::State::kFailed : Slot::State::kFull;
      slot->error = std::move(filled);
    }
    changed_.notify_all();
  }
}

absl::Status SlotWeights::Fill(Slot& slot) {
  const Tile& needed = TileOf(slot.number);
  const FeedForwardTile& tile =
      tiles_[static_cast<size_t>(needed.layer)][static_cast<size_t>(needed.index)];
  auto* memory = static_cast<std::byte*>(slot.memory.data());
  for (const FeedForwardTile::Range& range : tile.ranges) {
    for (int64_t done = 0; done < range.bytes; done += kPieceBytes) {
      if (stop_ || slot.dropped) return absl::CancelledError("nobody waits for it");
      const auto bytes = static_cast<size_t>(std::min(kPieceBytes, range.bytes - done));
      std::byte* const to = memory + range.to + done;
      std::byte* const read = device_->IsHost() ? to : piece_.data();
      absl::Status status = reader_->Read(needed.layer, range.from + done, {read, bytes});
      if (status.ok() && !device_->IsHost()) {
        status = device_->Copy(to, read, bytes, CopyKind::kHostToDevice);
      }
      if (!status.ok()) return status;
    }
  }
  slot.weights = tile.packed.At(memory);
  return absl::OkStatus();
}

}  // namespace skein::engine
