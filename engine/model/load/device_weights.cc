#include "engine/model/load/device_weights.h"

#include <map>
#include <utility>

namespace skein::engine {
namespace {

constexpr int64_t kAlignment = 256;  // of every tensor

int64_t BytesOf(const ConstMatrix& m) {
  return m.rows * m.cols * static_cast<int64_t>(BytesOf(m.dtype));
}

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Tensors, in the order in which they lie, without gaps between those of one dtype.
using Neighbours = std::vector<ConstMatrix*>;

// Of a layer's feed-forward weights.
std::vector<Neighbours> FeedForwardOf(LayerWeights& w) {
  FeedForwardWeights& ffn = w.feed_forward;
  return {{&ffn.gate.weight, &ffn.up.weight},
          {&ffn.gate.bias, &ffn.up.bias},
          {&ffn.down.weight},
          {&ffn.down.bias}};
}

// Of its others.
std::vector<Neighbours> NeighboursOf(LayerWeights& w) {
  return {{&w.query.weight, &w.key.weight, &w.value.weight},
          {&w.query.bias, &w.key.bias, &w.value.bias},
          {&w.attention_out.weight},
          {&w.attention_out.bias},
          {&w.attention_norm},
          {&w.query_norm},
          {&w.key_norm},
          {&w.ffn_norm}};
}

// Puts tensors one behind the other into a buffer; remembers the first error.
class Placer {
 public:
  Placer(Device* device, LoadProgress progress, int64_t total)
      : device_(device), progress_(std::move(progress)), total_(total) {}

  // Room for the tensors that follow.
  void Open(int64_t bytes) {
    if (!status_.ok()) return;
    absl::StatusOr<DeviceBuffer> buffer =
        DeviceBuffer::Allocate(device_, static_cast<size_t>(bytes));
    if (!buffer.ok()) {
      status_ = buffer.status();
      return;
    }
    owned_.push_back(*std::move(buffer));
    used_ = 0;
  }

  // Copies the tensor, and makes the view one of the copy.
  void Place(ConstMatrix& view) {
    if (view.empty() || !status_.ok()) return;
    auto* to = static_cast<std::byte*>(owned_.back().data()) + used_;
    const auto row_bytes = view.cols * static_cast<int64_t>(engine::BytesOf(view.dtype));
    const int64_t stride_bytes = view.stride * static_cast<int64_t>(engine::BytesOf(view.dtype));
    const auto* from = static_cast<const std::byte*>(view.data);
    const bool whole = view.stride == view.cols || view.rows <= 1;
    const int64_t pieces = whole ? 1 : view.rows;
    const auto bytes = static_cast<size_t>(whole ? BytesOf(view) : row_bytes);
    for (int64_t i = 0; i < pieces && status_.ok(); ++i) {
      status_ = device_->Copy(to + i * row_bytes, from + i * stride_bytes, bytes,
                              CopyKind::kHostToDevice);
    }
    used_ += Aligned(BytesOf(view));
    done_ += BytesOf(view);
    view.data = to;
    view.stride = view.cols;
    if (progress_ && status_.ok()) progress_(done_, total_);
  }

  // Lets the next tensor follow the last without a gap.
  void Join(const ConstMatrix& last) { used_ -= Aligned(BytesOf(last)) - BytesOf(last); }

  const absl::Status& status() const { return status_; }
  // REQUIRES: status is OK.
  DeviceBuffer TakeLast() {
    DeviceBuffer last = std::move(owned_.back());
    owned_.pop_back();
    return last;
  }
  std::vector<DeviceBuffer> TakeOwned() { return std::move(owned_); }

 private:
  Device* const device_;
  const LoadProgress progress_;
  const int64_t total_;
  std::vector<DeviceBuffer> owned_;
  int64_t used_ = 0;  // of the last buffer
  int64_t done_ = 0;
  absl::Status status_;
};

int64_t BytesOf(const std::vector<Neighbours>& all) {
  int64_t bytes = 0;
  for (const Neighbours& neighbours : all) {
    for (const ConstMatrix* m : neighbours) bytes += m->empty() ? 0 : Aligned(BytesOf(*m));
  }
  return bytes;
}

int64_t LayerBytes(LayerWeights w) { return BytesOf(NeighboursOf(w)); }
int64_t FeedForwardBytes(LayerWeights w) { return BytesOf(FeedForwardOf(w)); }

// Into a buffer of their own.
void PlaceTogether(const std::vector<Neighbours>& all, Placer& placer) {
  placer.Open(BytesOf(all));
  for (const Neighbours& neighbours : all) {
    const ConstMatrix* last = nullptr;
    for (ConstMatrix* m : neighbours) {
      if (m->empty()) continue;
      if (last != nullptr && last->dtype == m->dtype) placer.Join(*last);
      placer.Place(*m);
      last = m;
    }
  }
}

bool Ties(const ModelWeights& w) { return w.lm_head.data == w.embedding.data; }

// Of what no layer has.
int64_t BytesOutsideLayers(const ModelWeights& w) {
  return Aligned(BytesOf(w.embedding)) + Aligned(BytesOf(w.final_norm)) +
         (Ties(w) ? 0 : Aligned(BytesOf(w.lm_head)));
}

}  // namespace

int64_t PlacedBytes(const ModelWeights& weights) {
  size_t bytes = DeviceBytes(static_cast<size_t>(BytesOutsideLayers(weights)));
  for (const LayerWeights& layer : weights.layers) {
    bytes += DeviceBytes(static_cast<size_t>(LayerBytes(layer)));
    const int64_t feed_forward = FeedForwardBytes(layer);
    if (feed_forward > 0) bytes += DeviceBytes(static_cast<size_t>(feed_forward));
  }
  return static_cast<int64_t>(bytes);
}

absl::StatusOr<DeviceWeights> UploadWeights(const ModelWeights& weights, Device* device,
                                            const LoadProgress& progress) {
  DeviceWeights out{weights, {}, {}};
  ModelWeights& w = out.weights;
  const bool tied = Ties(w);
  const int64_t of_model = BytesOutsideLayers(w);
  int64_t total = of_model;
  for (const LayerWeights& layer : w.layers) total += LayerBytes(layer) + FeedForwardBytes(layer);
  Placer placer(device, progress, total);
  placer.Open(of_model);
  placer.Place(w.embedding);
  placer.Place(w.final_norm);
  if (tied) {
    w.lm_head = w.embedding;
  } else {
    placer.Place(w.lm_head);
  }
  for (LayerWeights& layer : w.layers) {
    PlaceTogether(NeighboursOf(layer), placer);
    DeviceBuffer& feed_forward = out.feed_forward.emplace_back();
    if (FeedForwardBytes(layer) == 0) continue;
    PlaceTogether(FeedForwardOf(layer), placer);
    if (placer.status().ok()) feed_forward = placer.TakeLast();
  }
  if (!placer.status().ok()) return placer.status();
  const absl::Status arrived = device->Synchronize();
  if (!arrived.ok()) return arrived;
  if (progress) progress(total, total);
  out.owned = placer.TakeOwned();
  return out;
}

}  // namespace skein::engine
