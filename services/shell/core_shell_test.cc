#include "services/shell/core_shell.h"

#include <gtest/gtest.h>

#include <future>
#include <string>
#include <variant>
#include <vector>

namespace skein::services {
namespace {

struct Number {
  int value = 0;
};
struct ToyTick {};
using ToyEvent = std::variant<Number, ToyTick>;
struct Say {
  std::string what;
};
using ToyEffect = std::variant<Say>;

// Emits each number twice.
class ToyCore {
 public:
  explicit ToyCore(int) {}
  std::vector<ToyEffect> Handle(const ToyEvent& event, int64_t) {
    const auto* number = std::get_if<Number>(&event);
    if (number == nullptr) return {};
    const std::string name = std::to_string(number->value);
    return {Say{name + "a"}, Say{name + "b"}};
  }
  int64_t NextDeadline() const { return INT64_MAX; }
  absl::Status CheckInvariants() const { return absl::OkStatus(); }
  int Snapshot(int64_t) const { return 0; }
};

class ToyShell : public CoreShell<ToyShell, ToyCore, ToyEvent, int> {
 public:
  ToyShell() : CoreShell(16) { StartCore("toy", 0, ToyTick{}); }
  ~ToyShell() { loop_.Stop(); }

  std::vector<std::string> Heard() {
    std::vector<std::string> heard;
    loop_.RunAndWait([&] { heard = std::exchange(heard_, {}); });
    return heard;
  }
  void HandleTwo(int first, int second) {
    loop_.RunAndWait([&] {
      Queue(Number{first});
      Queue(Number{second});
      HandleQueued();
    });
  }
  void StopOnLoop() {
    loop_.RunAndWait([this] { StopCore(); });
  }
  void AwaitPartsTick() { parts_ticked_.get_future().wait(); }

  bool part_is_due = false;  // before what wakes the loop

 private:
  friend CoreShell;

  void On(const Say& say) {
    heard_.push_back(say.what);
    if (say.what == "1a") {
      Handle(Number{2});
      QueueFirst(Number{3});
      HandleQueued();
    }
  }
  void Decided() { heard_.push_back("decided"); }
  void Handled() { heard_.push_back("handled"); }
  int64_t PartsDeadline() const { return part_is_due ? 0 : INT64_MAX; }
  void TickParts() {
    if (std::exchange(part_is_due, false)) parts_ticked_.set_value();
  }

  std::vector<std::string> heard_;
  std::promise<void> parts_ticked_;
};

using Words = std::vector<std::string>;

TEST(CoreShell, WhatEffectsBringWaitsUntilTheyAreExecuted) {
  ToyShell shell;
  shell.Heard();  // of the first tick
  shell.Post(Number{1});
  EXPECT_EQ(shell.Heard(), (Words{"decided", "1a", "1b",  //
                                  "decided", "3a", "3b",  //
                                  "decided", "2a", "2b", "handled"}));
  shell.HandleTwo(4, 5);
  EXPECT_EQ(shell.Heard(), (Words{"decided", "4a", "4b", "decided", "5a", "5b", "handled"}));
}

TEST(CoreShell, AStoppedCoreHearsOfNothing) {
  ToyShell shell;
  shell.Heard();
  shell.StopOnLoop();
  shell.Post(Number{1});
  EXPECT_EQ(shell.Heard(), Words{}) << "the loop still runs";
}

TEST(CoreShell, ThePartsBesideTheCoreAreTickedWhenTheyAreDue) {
  ToyShell shell;
  shell.Inspect([&](int, const absl::Status&) { shell.part_is_due = true; });
  shell.AwaitPartsTick();
}

}  // namespace
}  // namespace skein::services
