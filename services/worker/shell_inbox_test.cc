// A core that does not get to its messages: they are bounded, whatever they are.
#include <array>
#include <future>
#include <thread>

#include "engine/emulated/emulated_engine.h"
#include "engine/transport/loopback_transport.h"
#include "gtest/gtest.h"
#include "services/worker/decode_shell.h"

namespace skein::services {
namespace {

constexpr size_t kInbox = 4;

WorkerEngine EmulatedWorker() {
  engine::EmulatedOptions options;
  options.kv = {.num_layers = 1,
                .kv_heads = 1,
                .head_dim = 8,
                .block_tokens = 16,
                .dtype = engine::DType::kF32,
                .num_blocks = 256};
  WorkerEngine out;
  out.transport = engine::MakeLoopbackTransport(engine::MakeLoopbackFabric());
  out.engine = *engine::EmulatedEngine::Create(options);
  for (const engine::KvRegion& region : out.engine->KvRegions()) {
    out.regions.push_back(
        out.transport->Register(region.base, static_cast<size_t>(region.bytes))->id);
  }
  return out;
}

// Takes an answer that nobody reads.
class Ignored : public grpc::ServerUnaryReactor {
 public:
  void OnDone() override {}
};

// A shell whose loop stands still while it lives.
template <typename Shell, typename Snapshot>
class HeldLoop {
 public:
  explicit HeldLoop(Shell* shell)
      : thread_([this, shell] {
          shell->Inspect([this](const Snapshot&, const absl::Status&) {
            entered_.set_value();
            released_.get_future().wait();
          });
        }) {
    entered_.get_future().wait();
  }
  ~HeldLoop() {
    released_.set_value();
    thread_.join();
  }

 private:
  std::promise<void> entered_, released_;
  std::thread thread_;
};

TEST(ShellInbox, ADecodeShellTakesNoMoreAbortsThanFit) {
  WorkerEngine engine = EmulatedWorker();
  std::array<Ignored, 2 * kInbox> calls;
  DecodeShell shell(&engine, "127.0.0.1:1", kInbox);
  scheduler::DecodeConfig config;
  config.membership.identity.shape = ShapeOf(engine.engine->Spec());
  config.membership.identity.total_blocks = engine.engine->Spec().kv.num_blocks;
  shell.Start(config, [] {});
  const HeldLoop<DecodeShell, scheduler::DecodeSnapshot> held(&shell);
  size_t taken = 0;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (shell.Abort({.id = {1, i + 1}, .epoch = {1}}, &calls[i])) ++taken;
  }
  // The worker's own messages, such as an answer to its registration, may be before them.
  EXPECT_LE(taken, kInbox);
}

}  // namespace
}  // namespace skein::services
