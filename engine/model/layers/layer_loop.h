// The one loop over a model's layers. A step of one instance alone, of a group and of a ring differ
// in three parts: how attention gets its keys and values, how the feed-forward part is computed,
// and where the weights are. The loop takes any three. The engines put together these:
//
//   step            attention        feed-forward        weights
//   alone           PlainAttention   LocalFeedForward    here, or in slots
//   alone, shared   PlainAttention   SharedFeedForward   here, in slots, or at another rank
//   ring            RingAttention    LocalFeedForward    here, or in slots
//   ring, tp > 1    RingAttention    TensorFeedForward   here; ring_check refuses slots
//   group           GroupAttention   SummedFeedForward   here; GroupEngine refuses slots
//
// Layers that are elsewhere for good have a place (kElsewhere), but no engine has a phase for them.
//
// State between the parts (RunState): `residual` is the stream; `projected` is what the last part
// adds to it, and the next part's norm adds it (or End).
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "engine/model/forward/forward.h"
#include "engine/model/layers/weight_source.h"

namespace skein::engine {

// One step's attention, and its rows. Implementations: PlainAttention, GroupAttention,
// RingAttention. An error is a collective's.
class AttentionPhase {
 public:
  virtual ~AttentionPhase() = default;

  // residual = the embeddings of this rank's rows.
  virtual void Begin() = 0;

  // residual += projected (but for the first layer), then the layer's keys and values of every row
  // into the KV.
  virtual absl::Status WriteKv(const LayerWeights& w, int layer) = 0;

  // In the last layer, after WriteKv: from now on only the rows that need logits count. False: no
  // rank that this one shares a dense part with has any, and the rest of the layer is left out.
  virtual bool KeepLogitRows(const LayerWeights& w, int layer) = 0;

  // projected = the projection of the attention of Rows().
  virtual absl::Status Attend(const LayerWeights& w, int layer) = 0;

  // This rank's rows of the dense part, the first of residual; may be none.
  virtual const Batch& Rows() const = 0;

  // residual += projected. Waits until other ranks need nothing of this one's step any more.
  virtual absl::Status End() = 0;
};

// The feed-forward part of a layer. Implementations: LocalFeedForward, SharedFeedForward,
// SummedFeedForward, TensorFeedForward.
class FeedForwardPhase {
 public:
  virtual ~FeedForwardPhase() = default;

  // residual += projected; projected = down(silu(gate(x)) * up(x)), x = norm(residual), of `rows`,
  // which may be none. `w` is the layer's.
  virtual absl::Status Run(const LayerWeights& w, WeightSource& weights, int layer,
                           const Batch& rows) = 0;
};

struct LayerParts {
  AttentionPhase& attention;
  FeedForwardPhase& feed_forward;
  WeightSource& weights;
};

// Runs all layers, calling layer_queued(l) (if not null) as soon as the work that writes layer l's
// KV was given to the device. Leaves the output of the last layer, for the rows of KeepLogitRows
// only, in residual. What no logits need of the last layer is not computed.
absl::Status RunLayers(const LayerParts& parts, int layers,
                       const std::function<void(int layer)>& layer_queued);

}  // namespace skein::engine
