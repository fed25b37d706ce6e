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

// Bytes of one slot: any layer fits.
int64_t BytesOfSlot(const std::vector<FeedForwardPlace>& places,
                    const std::vector<FeedForwardWeights>& layers) {
  int64_t bytes = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] != FeedForwardPlace::kSlot) continue;
    bytes = std::max(bytes, PackedFeedForward(layers[i]).bytes());
  }
  return bytes;
}

int64_t SlotsOf(const SlotOptions& options) {
  return std::min<int64_t>(options.slots, std::count(options.places.begin(), options.places.end(),
                                                     FeedForwardPlace::kSlot));
}

}  // namespace

int64_t SlotBytes(const SlotOptions& options, const std::vector<FeedForwardWeights>& layers) {
  const auto bytes = static_cast<size_t>(BytesOfSlot(options.places, layers));
  return SlotsOf(options) * static_cast<int64_t>(DeviceBytes(bytes));
}

SlotWeights::SlotWeights(const ModelWeights* weights, const std::vector<FeedForwardWeights>& layers,
                         const SlotOptions& options, std::unique_ptr<FeedForwardReader> reader,
                         Device* device)
    : weights_(*weights), options_(options), reader_(std::move(reader)), device_(device) {
  for (const FeedForwardWeights& layer : layers) packed_.emplace_back(layer);
  for (size_t i = 0; i < options_.places.size(); ++i) {
    if (options_.places[i] == FeedForwardPlace::kSlot) order_.push_back(static_cast<int>(i));
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
  const auto bytes = static_cast<size_t>(BytesOfSlot(options.places, layers));
  for (int64_t i = 0; i < SlotsOf(options); ++i) {
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
  if (layer == 0 && !order_.empty()) {
    std::lock_guard lock(mu_);
    Seek(order_.front());
    if (failed_) {
      Slot* const last = queue_.back();
      queue_.pop_back();
      last->state = Slot::State::kFree;
      FillFrom(last->layer);
    }
  }
  return weights_.layers[static_cast<size_t>(layer)];
}

absl::StatusOr<const FeedForwardWeights*> SlotWeights::FeedForward(int layer) {
  const auto i = static_cast<size_t>(layer);
  if (options_.places[i] == FeedForwardPlace::kHere) return &weights_.layers[i].feed_forward;
  if (options_.places[i] == FeedForwardPlace::kElsewhere) return nullptr;
  std::unique_lock lock(mu_);
  Seek(layer);
  const auto there = [this] {
    if (queue_.empty()) return false;
    const Slot::State state = queue_.front()->state;
    return state == Slot::State::kFull || state == Slot::State::kFailed;
  };
  const auto until = std::chrono::steady_clock::now() + options_.wait_max;
  const std::string weights = absl::StrCat("layer ", layer, ": its feed-forward weights: ");
  if (!changed_.wait_until(lock, until, there)) {
    return absl::DeadlineExceededError(
        absl::StrCat(weights, "not read within ",
                     std::chrono::duration<double>(options_.wait_max).count(), " s"));
  }
  const Slot& slot = *queue_.front();
  SKEIN_CHECK(slot.layer == layer);
  if (slot.state == Slot::State::kFull) return &slot.weights;
  return absl::Status(slot.error.code(), absl::StrCat(weights, slot.error.message()));
}

void SlotWeights::Used(int layer) {
  if (options_.places[static_cast<size_t>(layer)] != FeedForwardPlace::kSlot) return;
  std::lock_guard lock(mu_);
  SKEIN_CHECK(!queue_.empty() && queue_.front()->layer == layer);
  DropFirst();
}

size_t SlotWeights::OrderOf(int layer) const {
  return static_cast<size_t>(std::find(order_.begin(), order_.end(), layer) - order_.begin());
}

void SlotWeights::Seek(int layer) {
  while (!queue_.empty() && queue_.front()->layer != layer) DropFirst();
  if (queue_.empty() && order_[next_] != layer) FillFrom(layer);
}

void SlotWeights::DropFirst() {
  Slot* const slot = queue_.front();
  queue_.pop_front();
  if (slot->state == Slot::State::kFailed) FillFrom(slot->layer);
  if (slot->state == Slot::State::kFilling) {
    slot->dropped = true;  // its filler frees it
  } else {
    slot->state = Slot::State::kFree;
  }
  changed_.notify_all();
}

void SlotWeights::FillFrom(int layer) {
  next_ = OrderOf(layer);
  failed_ = false;
  changed_.notify_all();
}

SlotWeights::Slot* SlotWeights::NextToFill() {
  if (failed_) return nullptr;
  for (Slot& slot : slots_) {
    if (slot.state == Slot::State::kFree) return &slot;
  }
  return nullptr;
}

void SlotWeights::FillSlots() {
  std::unique_lock lock(mu_);
  for (;;) {
    Slot* slot = nullptr;
    changed_.wait(lock, [&] { return stop_ || (slot = NextToFill()) != nullptr; });
    if (stop_) return;
    slot->layer = order_[next_];
    slot->state = Slot::State::kFilling;
    slot->dropped = false;
    next_ = (next_ + 1) % order_.size();
    queue_.push_back(slot);
    lock.unlock();
    absl::Status filled = Fill(*slot);
    lock.lock();
    if (slot->dropped) {
      slot->state = Slot::State::kFree;
    } else {
      failed_ = !filled.ok();
      slot->state = failed_ ? Slot::State::kFailed : Slot::State::kFull;
      slot->error = std::move(filled);
    }
    changed_.notify_all();
  }
}

absl::Status SlotWeights::Fill(Slot& slot) {
  const PackedFeedForward& packed = packed_[static_cast<size_t>(slot.layer)];
  auto* memory = static_cast<std::byte*>(slot.memory.data());
  for (int64_t offset = 0; offset < packed.bytes(); offset += kPieceBytes) {
    if (stop_ || slot.dropped) return absl::CancelledError("nobody waits for it");
    const auto bytes = static_cast<size_t>(std::min(kPieceBytes, packed.bytes() - offset));
    std::byte* const to = device_->IsHost() ? memory + offset : piece_.data();
    absl::Status status = reader_->Read(slot.layer, offset, {to, bytes});
    if (status.ok() && !device_->IsHost()) {
      status = device_->Copy(memory + offset, to, bytes, CopyKind::kHostToDevice);
    }
    if (!status.ok()) return status;
  }
  slot.weights = packed.At(memory);
  return absl::OkStatus();
}

}  // namespace skein::engine
