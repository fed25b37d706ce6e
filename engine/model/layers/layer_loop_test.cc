// The order in which the one layer loop runs its parts, and what a weight source may rely on.
#include "engine/model/layers/layer_loop.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/model/layers/local_feed_forward.h"

namespace skein::engine {
namespace {

using Calls = std::vector<std::string>;

std::string At(const char* what, int layer) { return what + std::to_string(layer); }

class FakeAttention : public AttentionPhase {
 public:
  explicit FakeAttention(Calls* calls) : calls_(*calls) {}

  void Begin() override { calls_.push_back("begin"); }
  absl::Status WriteKv(const LayerWeights&, int layer) override {
    calls_.push_back(At("write", layer));
    return layer == write_fails_at ? absl::UnavailableError("peer") : absl::OkStatus();
  }
  bool KeepLogitRows(const LayerWeights&, int layer) override {
    calls_.push_back(At("keep", layer));
    return rows_left;
  }
  absl::Status Attend(const LayerWeights&, int layer) override {
    calls_.push_back(At("attend", layer));
    return absl::OkStatus();
  }
  const Batch& Rows() const override { return rows_; }
  absl::Status End() override {
    calls_.push_back("end");
    return absl::OkStatus();
  }

  int write_fails_at = -1;
  bool rows_left = true;

 private:
  Calls& calls_;
  Batch rows_;
};

// A slot that is filled on demand: what it gives for a layer is gone when it was used.
class SlotWeights : public WeightSource {
 public:
  SlotWeights(Calls* calls, int layers) : calls_(*calls), layers_(static_cast<size_t>(layers)) {}

  const LayerWeights& Layer(int layer) override { return layers_[static_cast<size_t>(layer)]; }
  absl::StatusOr<const FeedForwardWeights*> FeedForward(int layer, int /*tile*/) override {
    calls_.push_back(At("fill", layer));
    if (layer == absent_at) return nullptr;
    return &slot_;
  }
  void Used(int layer, int /*tile*/) override { calls_.push_back(At("used", layer)); }

  int absent_at = -1;

 private:
  Calls& calls_;
  std::vector<LayerWeights> layers_;
  FeedForwardWeights slot_;
};

class LayerLoopTest : public ::testing::Test {
 protected:
  absl::Status Run() {
    Model model{};
    RunState state;
    LocalFeedForward feed_forward(&model, &state);
    return RunLayers({attention_, feed_forward, weights_}, 2,
                     [this](int layer) { calls_.push_back(At("done", layer)); });
  }

  Calls calls_;
  FakeAttention attention_{&calls_};
  SlotWeights weights_{&calls_, 2};
};

TEST_F(LayerLoopTest, ALayersWeightsAreAskedForBehindItsAttention) {
  EXPECT_TRUE(Run().ok());
  EXPECT_EQ(calls_, (Calls{"begin", "write0", "done0", "attend0", "fill0", "used0", "write1",
                           "done1", "keep1", "attend1", "fill1", "used1", "end"}));
}

TEST_F(LayerLoopTest, WithoutRowsThatNeedLogitsTheLastLayerEndsBehindItsKv) {
  attention_.rows_left = false;
  EXPECT_TRUE(Run().ok());
  EXPECT_EQ(calls_, (Calls{"begin", "write0", "done0", "attend0", "fill0", "used0", "write1",
                           "done1", "keep1", "end"}));
}

TEST_F(LayerLoopTest, AnErrorEndsTheLoopBeforeItsLayerIsTold) {
  attention_.write_fails_at = 1;
  EXPECT_EQ(Run(), absl::UnavailableError("peer"));
  EXPECT_EQ(calls_, (Calls{"begin", "write0", "done0", "attend0", "fill0", "used0", "write1"}));
}

TEST_F(LayerLoopTest, AbsentWeightsEndTheStepOfAPhaseThatNeedsThem) {
  weights_.absent_at = 1;
  const absl::Status status = Run();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("layer 1"), std::string::npos) << status;
}

}  // namespace
}  // namespace skein::engine
