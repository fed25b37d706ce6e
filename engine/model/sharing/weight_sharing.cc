#include "engine/model/sharing/weight_sharing.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/host/process_watch.h"
#include "engine/kv/kv_pages.h"
#include "engine/model/load/packed_feed_forward.h"
#include "engine/model/sharing/checkpoint_file.h"
#include "scheduler/vocabulary/check.h"
#include "scheduler/vocabulary/mix64.h"

namespace skein::engine {
namespace {

constexpr int64_t kPieceBytes = 4 << 20;

int64_t BytesOf(const FeedForwardWeights& layer) { return PackedFeedForward(layer).bytes(); }

size_t BudgetBytes(const FeedForwardWeights& layer) {
  return DeviceBytes(static_cast<size_t>(BytesOf(layer)));
}

// Each rank has a new wire with each offer, so the same names are never those of another group.
uint64_t IdOf(const std::vector<std::string>& wires) {
  uint64_t id = kMix64Step;
  for (const std::string& wire : wires) {
    for (const char c : wire) id = Mix64(id ^ static_cast<unsigned char>(c));
    id += kMix64Step;
  }
  return id;
}

}  // namespace

WeightSharing::WeightSharing(SharingOptions options) : options_(std::move(options)) {}

WeightSharing::~WeightSharing() = default;

void WeightSharing::Bind(Parts parts) {
  SKEIN_CHECK(parts_.model == nullptr);
  parts_ = std::move(parts);
  shapes_.reserve(parts_.weights->layers.size());
  for (const LayerWeights& layer : parts_.weights->layers) shapes_.push_back(layer.feed_forward);
}

void WeightSharing::Unbind() {
  calls_.reset();
  shares_ = false;
  slots_ = nullptr;
  others_.clear();
  parts_ = {};
  shapes_.clear();
  if (options_.budget != nullptr) options_.budget->Give(static_cast<size_t>(owned_taken_));
  owned_taken_ = 0;
  owned_.reset();
  rank_ = -1;
}

CallShape WeightSharing::ShapeOfCalls() const {
  return {.ranks = owners_.ranks,
          .rows_max = options_.call_rows_max,
          .hidden = parts_.config->hidden_size,
          .activation = parts_.weights->activation};
}

absl::StatusOr<SharingOffer> WeightSharing::Offer(int rank, int ranks) {
  const std::lock_guard lock(steps_);
  if (ranks < 2 || rank < 0 || rank >= ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " of ", ranks, ": must be one of 2 or more"));
  }
  if (parts_.device == nullptr || !parts_.device->IsHost()) {
    return absl::FailedPreconditionError(
        "shared weights: the weights must be in memory of this process on the host");
  }
  if (shares_) return absl::FailedPreconditionError("shared weights: it shares already");
  absl::StatusOr<std::unique_ptr<RankWire>> wire = RankWire::Make();
  if (!wire.ok()) return wire.status();
  if (owned_ != nullptr && (rank != rank_ || ranks != owners_.ranks)) {
    absl::Status home = MoveHome();
    if (!home.ok()) return home;
  }
  rank_ = rank;
  owners_ = {ranks};
  std::unique_ptr<CallAreas> areas = CallAreas::Allocate(ShapeOfCalls());
  if (areas == nullptr) {
    return absl::ResourceExhaustedError("shared weights: no memory for the rows of calls");
  }
  absl::Status moved = MoveOut();
  if (!moved.ok()) return moved;
  wire_ = *std::move(wire);
  calls_areas_ = std::move(areas);
  offer_ = {.rank = rank,
            .ranks = ranks,
            .model_hash = parts_.model_hash,
            .process = ThisProcess(),
            .layers = owned_->name(),
            .calls = calls_areas_->name(),
            .wire = wire_->name()};
  return offer_;
}

// One layer at a time: there is one more than the budget says while it is copied.
absl::Status WeightSharing::MoveOut() {
  if (owned_ != nullptr) return absl::OkStatus();
  owned_ = SharedLayers::Allocate(SharedLayout(shapes_, owners_, rank_));
  if (owned_ == nullptr) {
    return absl::ResourceExhaustedError("shared weights: no memory that others can map");
  }
  for (size_t i = 0; i < shapes_.size(); ++i) {
    const auto layer = static_cast<int>(i);
    if (!Owns(layer)) continue;
    const PackedFeedForward packed(shapes_[i]);
    FeedForwardWeights& weights = Layer(layer).feed_forward;
    packed.Pack(weights, 0, {owned_->At(layer), static_cast<size_t>(packed.bytes())});
    weights = packed.At(owned_->At(layer));
    (*parts_.feed_forward)[i] = DeviceBuffer();
    // What was given back just now is there.
    const size_t bytes = BudgetBytes(shapes_[i]);
    if (options_.budget != nullptr && options_.budget->Take(bytes)) {
      owned_taken_ += static_cast<int64_t>(bytes);
    }
  }
  parts_.slices->MakeAgain();
  return absl::OkStatus();
}

absl::Status WeightSharing::MoveHome() {
  if (options_.budget != nullptr) options_.budget->Give(static_cast<size_t>(owned_taken_));
  owned_taken_ = 0;
  for (size_t i = 0; i < shapes_.size(); ++i) {
    const auto layer = static_cast<int>(i);
    if (!Owns(layer) || (*parts_.feed_forward)[i].data() != nullptr) continue;
    const PackedFeedForward packed(shapes_[i]);
    absl::StatusOr<DeviceBuffer> memory =
        DeviceBuffer::Allocate(parts_.device, static_cast<size_t>(packed.bytes()));
    if (!memory.ok()) return memory.status();
    absl::Status copied =
        parts_.device->Copy(memory->data(), owned_->At(layer), static_cast<size_t>(packed.bytes()),
                            CopyKind::kHostToDevice);
    if (!copied.ok()) return copied;
    Layer(layer).feed_forward = packed.At(memory->data());
    (*parts_.feed_forward)[i] = *std::move(memory);
  }
  parts_.slices->MakeAgain();
  owned_.reset();
  return absl::OkStatus();
}

absl::Status WeightSharing::CheckEpoch(uint64_t epoch) const {
  if (epoch > epoch_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("shared weights: an order of epoch ", epoch,
                                                    " came after one of epoch ", epoch_));
}

absl::Status WeightSharing::CheckMode(SharedMode mode) const {
  if (mode == SharedMode::kWeights || options_.make_serving_ops) return absl::OkStatus();
  return absl::InvalidArgumentError("shared weights: this engine cannot compute for others");
}

absl::Status WeightSharing::CheckOffers(std::span<const SharingOffer> offers) const {
  if (wire_ == nullptr) return absl::FailedPreconditionError("shared weights: it has offered none");
  if (static_cast<int>(offers.size()) != owners_.ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("offers: ", offers.size(), ", must be of ", owners_.ranks, " ranks"));
  }
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    const SharingOffer& offer = offers[rank];
    if (offer.rank != static_cast<int>(rank) || offer.ranks != owners_.ranks) {
      return absl::InvalidArgumentError(absl::StrCat("offers: the one at ", rank, " is of rank ",
                                                     offer.rank, " of ", offer.ranks));
    }
    if (offer.model_hash != parts_.model_hash) {
      return absl::InvalidArgumentError(absl::StrCat("offers: rank ", rank, " has another model"));
    }
  }
  if (offers[static_cast<size_t>(rank_)].wire == offer_.wire) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("offers: that of rank ", rank_, " is not this rank's last one"));
}

absl::Status WeightSharing::MapOthers(std::span<const SharingOffer> offers,
                                      std::vector<LayersOwner>* owners,
                                      std::vector<std::unique_ptr<CallAreas>>* areas) const {
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    const SharingOffer& offer = offers[rank];
    LayersOwner& owner = owners->emplace_back();
    areas->emplace_back();
    if (static_cast<int>(rank) == rank_) continue;
    owner = {offer.process, SharedLayers::Map(SharedLayout(shapes_, owners_, offer.rank),
                                              offer.process, offer.layers)};
    areas->back() = CallAreas::Map(ShapeOfCalls(), offer.process, offer.calls);
    if (owner.layers != nullptr && areas->back() != nullptr) continue;
    return absl::UnavailableError(
        absl::StrCat("rank ", rank, ": its memory is not reached from here"));
  }
  return absl::OkStatus();
}

absl::Status WeightSharing::Enter(uint64_t epoch, std::span<const SharingOffer> offers,
                                  SharedMode mode) {
  const std::lock_guard lock(steps_);
  if (epoch == epoch_ && shares_) return absl::OkStatus();
  absl::Status status = CheckEpoch(epoch);
  if (status.ok()) status = CheckMode(mode);
  if (status.ok()) status = CheckOffers(offers);
  if (!status.ok()) return status;
  std::vector<LayersOwner> owners;
  std::vector<std::unique_ptr<CallAreas>> areas;
  status = MapOthers(offers, &owners, &areas);
  if (!status.ok()) return status;
  std::vector<std::string> wires;
  wires.reserve(offers.size());
  for (const SharingOffer& offer : offers) wires.push_back(offer.wire);
  status = wire_->Join(IdOf(wires), wires, rank_);
  if (!status.ok()) return status;

  epoch_ = epoch;
  others_ = std::move(owners);
  BeginCounts();
  for (size_t i = 0; i < shapes_.size(); ++i) {
    if (Owns(static_cast<int>(i))) continue;
    Layer(static_cast<int>(i)).feed_forward = {};
    (*parts_.feed_forward)[i] = DeviceBuffer();
  }
  status = MakeSlots();
  if (status.ok() && options_.make_serving_ops) status = BeginCalls(std::move(areas));
  if (!status.ok()) {
    Use(std::make_unique<WholeWeights>(parts_.weights));
    const absl::Status back = ReadBack();
    // Others' memory is mapped, and there was room before.
    SKEIN_CHECK_MSG(back.ok(), back.ToString().c_str());
    others_.clear();
    return status;
  }
  shares_ = true;
  mode_ = mode;
  slots_->ReadAhead(mode == SharedMode::kWeights);
  return absl::OkStatus();
}

void WeightSharing::BeginCounts() {
  const SharingTotals totals = Totals();
  const std::lock_guard lock(counts_mu_);
  totals_before_ = totals;
  read_counts_ = std::make_shared<ReadCounts>(shapes_.size());
  call_counts_ = std::make_shared<CallCounts>(shapes_.size());
}

SharingTotals WeightSharing::Totals() const {
  const std::lock_guard lock(counts_mu_);
  SharingTotals totals = totals_before_;
  if (read_counts_ == nullptr) return totals;
  for (const auto& bytes : read_counts_->from_owner) totals.bytes_from_owners += bytes;
  for (const auto& bytes : read_counts_->from_file) totals.bytes_from_file += bytes;
  for (const auto& rows : call_counts_->rows_sent) totals.rows_sent += rows;
  for (const auto& rows : call_counts_->rows_served) totals.rows_served += rows;
  totals.calls_given_up += call_counts_->given_up;
  return totals;
}

absl::Status WeightSharing::BeginCalls(std::vector<std::unique_ptr<CallAreas>> areas) {
  areas[static_cast<size_t>(rank_)] = std::move(calls_areas_);
  if (serving_ops_ == nullptr) serving_ops_ = options_.make_serving_ops();
  ComputeCalls::Options options = {.shape = ShapeOfCalls(),
                                   .config = parts_.config,
                                   .device = parts_.device,
                                   .ops = serving_ops_.get(),
                                   .rank = rank_,
                                   .owned = {},
                                   .answer_max = options_.answer_max};
  options.owned.reserve(shapes_.size());
  for (const LayerWeights& layer : parts_.weights->layers) {
    options.owned.push_back(layer.feed_forward);  // empty where another rank owns it
  }
  auto calls =
      ComputeCalls::Make(std::move(options), std::move(wire_), std::move(areas), call_counts_);
  if (!calls.ok()) return calls.status();
  calls_ = *std::move(calls);
  return absl::OkStatus();
}

std::unique_ptr<FeedForwardReader> WeightSharing::MakeReader() const {
  auto file = std::make_unique<CheckpointFile>(parts_.model_dir, *parts_.config, parts_.model_hash);
  return std::make_unique<OwnersReader>(others_, std::move(file), read_counts_);
}

absl::Status WeightSharing::MakeSlots() {
  const SlotPlan plan = DefaultSlots(shapes_, owners_.ranks, options_.slot_bytes_max);
  SlotOptions options;
  for (size_t i = 0; i < shapes_.size(); ++i) {
    options.places.push_back(Owns(static_cast<int>(i)) ? FeedForwardPlace::kHere
                                                       : FeedForwardPlace::kSlot);
  }
  options.slots = plan.slots;
  options.tile_bytes = plan.tile_bytes;
  options.rank = rank_;
  options.ranks = owners_.ranks;
  options.wait_max = options_.wait_max;
  auto slots = SlotWeights::Create(parts_.weights, shapes_, options, MakeReader(), parts_.device);
  if (!slots.ok()) return slots.status();
  SlotWeights* const made = slots->get();
  Use(*std::move(slots));
  slots_ = made;
  return absl::OkStatus();
}

void WeightSharing::Use(std::unique_ptr<WeightSource> source) {
  slots_ = nullptr;
  *parts_.source = std::move(source);
  parts_.model->source = parts_.source->get();
}

absl::Status WeightSharing::ReadBack() {
  const std::unique_ptr<FeedForwardReader> reader = MakeReader();
  std::vector<DeviceBuffer> memory(shapes_.size());
  for (size_t i = 0; i < shapes_.size(); ++i) {
    const auto layer = static_cast<int>(i);
    if (Owns(layer)) continue;
    const int64_t bytes = BytesOf(shapes_[i]);
    auto buffer = DeviceBuffer::Allocate(parts_.device, static_cast<size_t>(bytes));
    if (!buffer.ok()) return buffer.status();
    memory[i] = *std::move(buffer);
    for (int64_t offset = 0; offset < bytes; offset += kPieceBytes) {
      const auto piece = static_cast<size_t>(std::min(kPieceBytes, bytes - offset));
      absl::Status read =
          reader->Read(layer, offset, {static_cast<std::byte*>(memory[i].data()) + offset, piece});
      if (!read.ok()) return read;
    }
  }
  for (size_t i = 0; i < shapes_.size(); ++i) {
    if (memory[i].data() == nullptr) continue;
    Layer(static_cast<int>(i)).feed_forward = PackedFeedForward(shapes_[i]).At(memory[i].data());
    (*parts_.feed_forward)[i] = std::move(memory[i]);
  }
  parts_.slices->MakeAgain();
  return absl::OkStatus();
}

absl::Status WeightSharing::SwitchTo(uint64_t epoch, SharedMode mode) {
  const std::lock_guard lock(steps_);
  if (!shares_) return absl::FailedPreconditionError("shared weights: it does not share");
  if (epoch == epoch_ && mode == mode_) return absl::OkStatus();
  absl::Status status = CheckEpoch(epoch);
  if (status.ok()) status = CheckMode(mode);
  if (status.ok() && mode == SharedMode::kCompute && calls_ == nullptr) {
    status = absl::FailedPreconditionError("shared weights: it serves no calls any more");
  }
  if (!status.ok()) return status;
  epoch_ = epoch;
  mode_ = mode;
  slots_->ReadAhead(mode == SharedMode::kWeights);
  return absl::OkStatus();
}

absl::Status WeightSharing::Leave(uint64_t epoch) {
  const std::lock_guard lock(steps_);
  if (epoch == epoch_ && !shares_) return absl::OkStatus();
  absl::Status status = CheckEpoch(epoch);
  if (!status.ok()) return status;
  if (!shares_) return absl::FailedPreconditionError("shared weights: it does not share");
  calls_.reset();
  mode_ = SharedMode::kWeights;
  // Its memory is that of the weights which come.
  Use(std::make_unique<WholeWeights>(parts_.weights));
  absl::Status back = ReadBack();
  if (!back.ok()) {
    const absl::Status slots = MakeSlots();
    SKEIN_CHECK_MSG(slots.ok(), slots.ToString().c_str());  // they were there
    return back;
  }
  epoch_ = epoch;
  shares_ = false;
  others_.clear();
  return absl::OkStatus();
}

SharingBytes WeightSharing::Bytes(int ranks) const {
  return CountSharing(shapes_, ranks, DefaultSlots(shapes_, ranks, options_.slot_bytes_max));
}

std::vector<int64_t> WeightSharing::Gains(const std::vector<FeedForwardWeights>& layers,
                                          const ModelConfig& config, DType activation,
                                          int ranks) const {
  const SlotPlan plan = DefaultSlots(layers, ranks, options_.slot_bytes_max);
  int64_t taken =
      plan.slots * static_cast<int64_t>(DeviceBytes(static_cast<size_t>(plan.tile_bytes)));
  if (options_.make_serving_ops) {
    taken += ComputeCalls::BufferBytes({.ranks = ranks,
                                        .rows_max = options_.call_rows_max,
                                        .hidden = config.hidden_size,
                                        .activation = activation},
                                       config);
  }
  std::vector<int64_t> gains(static_cast<size_t>(ranks), -taken);
  const WeightOwners owners{ranks};
  for (size_t i = 0; i < layers.size(); ++i) {
    for (int rank = 0; rank < ranks; ++rank) {
      if (owners.OwnerOf(static_cast<int>(i)) == rank) continue;
      gains[static_cast<size_t>(rank)] += static_cast<int64_t>(BudgetBytes(layers[i]));
    }
  }
  return gains;
}

int64_t WeightSharing::RoomFor(const std::vector<FeedForwardWeights>& layers,
                               const ModelConfig& config, DType activation) const {
  int64_t room = 0;
  for (int ranks = 2; ranks <= options_.ranks_max; ranks *= 2) {
    for (const int64_t gain : Gains(layers, config, activation, ranks)) {
      room = std::max(room, -gain);
    }
  }
  return room;
}

int64_t WeightSharing::ExtraBlocksFor(const std::vector<FeedForwardWeights>& layers,
                                      const ModelConfig& config, DType activation,
                                      const KvSpec& kv) const {
  if (options_.kv_device == nullptr || options_.budget == nullptr) return 0;
  int64_t most = 0;
  for (int ranks = 2; ranks <= options_.ranks_max; ranks *= 2) {
    for (const int64_t gain : Gains(layers, config, activation, ranks)) {
      most = std::max(most, gain);
    }
  }
  return std::min(KvBlocksIn(most, kv), INT32_MAX - kv.num_blocks);
}

BlockRange WeightSharing::TakeExtraKv() {
  const std::lock_guard lock(steps_);
  SKEIN_CHECK(shares_);
  return parts_.extra_kv == nullptr ? BlockRange{} : parts_.extra_kv->Come();
}

absl::Status WeightSharing::GiveExtraKv(std::span<const BlockMove> moves) {
  const std::lock_guard lock(steps_);
  return parts_.extra_kv == nullptr ? absl::OkStatus() : parts_.extra_kv->Go(moves);
}

SharedFeedForward WeightSharing::FeedForward(RunState* state) const {
  return SharedFeedForward(parts_.model, state, owners_, options_.call_rows_max,
                           mode_ == SharedMode::kCompute ? calls_.get() : nullptr);
}

}  // namespace skein::engine
