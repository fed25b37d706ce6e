// A core that does not get to its messages: they are bounded, whatever they are.
#include <array>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include "gtest/gtest.h"
#include "services/worker/decode/decode_shell.h"
#include "services/worker/testing/emulated_worker.h"

namespace skein::services {
namespace {

using testing::EmulatedWorker;

constexpr size_t kInbox = 16;

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

// Until the shell's loop has taken what was in its inbox.
template <typename Snapshot, typename Shell>
void AwaitTheLoop(Shell* shell) {
  EXPECT_TRUE(shell->Inspect([](const Snapshot&, const absl::Status&) {}));
}

TEST(ShellInbox, ADecodeShellTakesNoMoreAbortsThanFit) {
  WorkerEngine engine = EmulatedWorker();
  std::array<Ignored, 2 * kInbox> calls;
  Ignored after;
  DecodeShell shell(&engine, "127.0.0.1:1", kInbox);
  scheduler::DecodeConfig config;
  config.membership.identity.shape = ShapeOf(engine.engine->Spec());
  config.membership.identity.total_blocks = engine.engine->Spec().kv.num_blocks;
  shell.Start(config, [] {});
  size_t taken = 0;
  {
    const HeldLoop<DecodeShell, scheduler::DecodeSnapshot> held(&shell);
    for (size_t i = 0; i < calls.size(); ++i) {
      if (shell.Abort({.id = {1, i + 1}, .epoch = {1}}, &calls[i])) ++taken;
    }
  }
  // The worker's own messages, such as an answer to its registration, may be before them.
  EXPECT_LE(taken, kInbox);
  EXPECT_GT(taken, 0u);
  AwaitTheLoop<scheduler::DecodeSnapshot>(&shell);
  EXPECT_TRUE(shell.Abort({.id = {1, 1}, .epoch = {1}}, &after));
}

// What /metrics and /status read does not wait for the messages before it.
TEST(ShellInbox, ACopyIsTakenAheadOfTheMessagesThatWait) {
  WorkerEngine engine = EmulatedWorker();
  DecodeShell shell(&engine, "127.0.0.1:1", kInbox);
  EXPECT_FALSE(shell.Look().has_value()) << "it has not started";
  scheduler::DecodeConfig config;
  config.membership.identity.shape = ShapeOf(engine.engine->Spec());
  config.membership.identity.total_blocks = engine.engine->Spec().kv.num_blocks;
  shell.Start(config, [] {});
  auto spec = std::make_shared<scheduler::RequestSpec>();
  spec->id = {1, 1};
  spec->prompt = {1, 2};
  spec->max_tokens = 1;
  std::future<std::optional<DecodeShell::Copy>> copy;
  {
    const HeldLoop<DecodeShell, scheduler::DecodeSnapshot> held(&shell);
    shell.Post(scheduler::AnnounceCalled{{.spec = spec, .epoch = {1}}, absl::OkStatus()});
    copy = shell.StartLook();
  }
  const auto before = copy.get();
  ASSERT_TRUE(before.has_value());
  EXPECT_EQ(before->snapshot.announced, 0);
  EXPECT_TRUE(before->invariants.ok());
  AwaitTheLoop<scheduler::DecodeSnapshot>(&shell);
  EXPECT_EQ(shell.Look()->snapshot.announced, 1);
  shell.Stop();
  EXPECT_FALSE(shell.Look().has_value());
}

}  // namespace
}  // namespace skein::services
