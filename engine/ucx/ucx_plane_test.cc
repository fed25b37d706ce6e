// Two users of a plane share its worker and its endpoints, and hinder one another in nothing.
#include "engine/ucx/ucx_plane.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr int kAnyNumber = 100;

std::string TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class User final : public PlaneUser {
 public:
  User(UcxPlane* plane, PlaneUse use) : plane_(*plane), rung_fd_(plane_.Attach(use, this)) {}
  ~User() {
    for (PlanePeer* const peer : peers_) plane_.Release(peer);
    plane_.Detach(this);
  }
  void OnMessage(std::span<const std::byte> message) override {
    EXPECT_FALSE(std::exchange(called_back_, true));
    heard.push_back(TextOf(message));
    if (on_message) on_message();
    called_back_ = false;
  }
  void OnSent(void* cookie, bool ok) override {
    EXPECT_FALSE(called_back_) << "within another callback";
    (ok ? sent : failed).push_back(cookie);
  }

  void OnKept() override { ++told; }

  PlanePeer* Connect(const UcxPlane& to) {
    peers_.push_back(plane_.Connect(to.address()).value());
    return peers_.back();
  }
  // From texts.back().
  UcxPlane::Started Send(PlanePeer* to, const std::string& text, void* cookie = nullptr) {
    const auto bytes = std::as_bytes(std::span(texts.emplace_back(text)));
    const std::span<const std::byte> parts[] = {bytes.first(1), bytes.subspan(1)};
    return plane_.Send(this, to, parts, cookie);
  }
  int Progress() { return plane_.Progress(this, kAnyNumber); }
  bool Arm() { return plane_.Arm(this); }
  void Awake() { plane_.Awake(this); }
  bool IsRung() const {
    pollfd fd = {rung_fd_, POLLIN, 0};
    return poll(&fd, 1, 0) == 1;
  }

  std::deque<std::string> texts;
  std::vector<std::string> heard;
  std::vector<void*> sent, failed;
  int told = 0;                      // that much is kept for it
  std::function<void()> on_message;  // may be empty

 private:
  UcxPlane& plane_;
  const int rung_fd_;
  bool called_back_ = false;
  std::vector<PlanePeer*> peers_;
};

// A process's plane and its two users.
struct Process {
  std::shared_ptr<UcxPlane> plane =
      UcxPlane::Make({.tls = "self,posix", .own_wires = false}).value();
  User transport{plane.get(), PlaneUse::kTransport};
  User comm{plane.get(), PlaneUse::kComm};
};

class UcxPlaneTest : public testing::Test {
 protected:
  // Progress of all until `done`; UCX completes a connection and a message in a few rounds.
  template <typename Done>
  void Await(Done done) {
    while (!done()) {
      for (User* const user : {&here_.transport, &here_.comm, &there_.transport, &there_.comm}) {
        user->Progress();
      }
    }
  }

  Process here_, there_;
};

TEST_F(UcxPlaneTest, BothUsersShareOneEndpointForEachPeer) {
  PlanePeer* const first = here_.transport.Connect(*there_.plane);
  EXPECT_EQ(here_.comm.Connect(*there_.plane), first);
  EXPECT_EQ(here_.transport.Connect(*there_.plane), first);
  EXPECT_EQ(here_.plane->peers(), 1u);
  EXPECT_NE(here_.transport.Connect(*here_.plane), first);
  EXPECT_EQ(here_.plane->peers(), 2u);
}

TEST_F(UcxPlaneTest, AMessageGoesToTheSameUserOfThePeer) {
  PlanePeer* const peer = here_.transport.Connect(*there_.plane);
  here_.transport.Send(peer, "KV");
  here_.comm.Send(peer, "sum");
  Await([&] { return !there_.transport.heard.empty() && !there_.comm.heard.empty(); });
  EXPECT_EQ(there_.transport.heard, std::vector<std::string>{"KV"});
  EXPECT_EQ(there_.comm.heard, std::vector<std::string>{"sum"});
}

// What another user's progress takes is kept, in order, and delivered in calls of its own.
TEST_F(UcxPlaneTest, WhatAnotherUserTakesIsKept) {
  PlanePeer* const peer = here_.transport.Connect(*there_.plane);
  here_.transport.Send(peer, "begin");
  Await([&] { return !there_.transport.heard.empty(); });
  for (const char* const text : {"1", "2", "3"}) here_.comm.Send(peer, text);
  here_.transport.Send(peer, "end");
  while (there_.transport.heard.size() < 2) {
    here_.transport.Progress();
    there_.transport.Progress();
  }
  EXPECT_TRUE(there_.comm.heard.empty());
  EXPECT_FALSE(there_.comm.Arm()) << "something is kept for it";
  EXPECT_GE(there_.comm.Progress(), 3);
  EXPECT_EQ(there_.comm.heard, (std::vector<std::string>{"1", "2", "3"}));
}

// What is kept for a user that does not look is bounded: what more there is waits, and nothing is
// lost.
TEST_F(UcxPlaneTest, AUserThatDoesNotLookStopsTheOtherWhenTooMuchIsKept) {
  PlanePeer* const peer = here_.transport.Connect(*there_.plane);
  here_.transport.Send(peer, "begin");
  Await([&] { return !there_.transport.heard.empty(); });
  there_.transport.heard.clear();
  const std::string text(60'000, 'K');
  const size_t most = UcxPlane::kKeptBytesMax / text.size() + 100;
  int cookie = 0;
  size_t count = 0;
  bool moves = true;  // `there_` does for its comm
  for (; moves && count < most; ++count) {
    const UcxPlane::Started started = here_.transport.Send(peer, text, &cookie);
    const size_t sent = here_.transport.sent.size() + 1;
    for (int idle = 0;
         moves && started.how == UcxPlane::How::kUnderWay && here_.transport.sent.size() < sent;
         ++idle) {
      here_.transport.Progress();
      if (there_.comm.Progress() > 0) idle = 0;
      moves = idle < 1000;
    }
    if (started.how == UcxPlane::How::kDone) here_.transport.texts.pop_back();
  }
  EXPECT_LT(count, most);
  EXPECT_GE(count, UcxPlane::kKeptBytesMax / text.size());
  EXPECT_EQ(there_.transport.told, 1) << "long before";
  EXPECT_EQ(there_.comm.told, 0);
  here_.comm.Send(here_.comm.Connect(*there_.plane), "behind it");
  Await([&] { return !there_.comm.heard.empty(); });
  const auto& heard = there_.transport.heard;
  EXPECT_EQ(heard.size(), count);
  EXPECT_TRUE(std::all_of(heard.begin(), heard.end(), [&](const auto& h) { return h == text; }));
}

TEST_F(UcxPlaneTest, WhatHasEndedIsNotToldWithinAnotherCallback) {
  PlanePeer* const peer = here_.comm.Connect(*there_.plane);
  int cookie = 0;
  while (here_.comm.Send(peer, std::string(8000, 'm'), &cookie).how != UcxPlane::How::kUnderWay) {
  }
  here_.comm.on_message = [&] { here_.plane->Cut(peer); };
  here_.comm.Send(here_.comm.Connect(*here_.plane), "to itself");
  while (here_.comm.failed.empty()) here_.comm.Progress();
  EXPECT_EQ(here_.comm.heard, std::vector<std::string>{"to itself"});
  EXPECT_EQ(here_.comm.failed, std::vector<void*>{&cookie});
}

TEST_F(UcxPlaneTest, AUserThatSleepsIsRungForItsOwnOnly) {
  PlanePeer* const peer = here_.transport.Connect(*there_.plane);
  here_.transport.Send(peer, "begin");
  Await([&] { return !there_.transport.heard.empty(); });
  while (!there_.comm.Arm()) there_.comm.Progress();
  here_.transport.Send(peer, "for the other");
  while (there_.transport.heard.size() < 2) {
    here_.transport.Progress();
    there_.transport.Progress();
  }
  EXPECT_FALSE(there_.comm.IsRung());
  here_.comm.Send(peer, "wake up");
  while (!there_.comm.IsRung()) {
    here_.transport.Progress();
    there_.transport.Progress();
  }
  there_.comm.Awake();
  EXPECT_FALSE(there_.comm.IsRung());
  there_.comm.Progress();
  EXPECT_EQ(there_.comm.heard, std::vector<std::string>{"wake up"});
}

// Sends until the peer, which does not look, has no room left.
TEST_F(UcxPlaneTest, WhatIsUnderWayMayBeTakenOver) {
  PlanePeer* const peer = here_.comm.Connect(*there_.plane);
  here_.comm.Send(peer, "begin");
  Await([&] { return !there_.comm.heard.empty(); });
  int cookies[4] = {};
  size_t count = 0;
  UcxPlane::Started started;
  for (; started.how != UcxPlane::How::kUnderWay; ++count) {
    ASSERT_EQ(started.how, UcxPlane::How::kDone);
    started = here_.comm.Send(peer, std::string(8000, 'm'), &cookies[0]);
  }
  const auto second = here_.comm.Send(peer, std::string(8000, 'K'), &cookies[1]);
  std::string& kept = here_.comm.texts.back();
  const auto third = here_.comm.Send(peer, std::string(8000, 'G'), &cookies[1]);
  std::string& given_up = here_.comm.texts.back();
  const auto last = here_.comm.Send(peer, std::string(8000, 'P'), &cookies[3]);
  ASSERT_EQ(last.how, UcxPlane::How::kUnderWay);
  here_.plane->TakeOver(second.operation, &cookies[2]);
  here_.plane->TakeOver(third.operation, nullptr);
  kept.assign(8000, 'x');
  given_up.assign(8000, 'x');
  Await([&] { return there_.comm.heard.size() == 1 + count + 3; });
  Await([&] { return here_.comm.sent.size() == 3; });
  EXPECT_EQ(here_.comm.sent, (std::vector<void*>{&cookies[0], &cookies[2], &cookies[3]}));
  const size_t end = there_.comm.heard.size();
  EXPECT_EQ(there_.comm.heard[end - 3], std::string(8000, 'K'));
  EXPECT_EQ(there_.comm.heard[end - 2], std::string(8000, 'G'));
  EXPECT_EQ(there_.comm.heard[end - 1], std::string(8000, 'P'));
}

// Its end may be found by the other user, and wait here until this one looks.
TEST_F(UcxPlaneTest, WhatHasEndedLeavesNothingBehindWhenItIsTakenOver) {
  PlanePeer* const peer = here_.comm.Connect(*there_.plane);
  here_.comm.Send(peer, "begin");
  Await([&] { return !there_.comm.heard.empty(); });
  int cookie = 0;
  const auto send_until_under_way = [&](char letter) {
    UcxPlane::Started started;
    while (started.how != UcxPlane::How::kUnderWay) {
      started = here_.comm.Send(peer, std::string(8000, letter), &cookie);
    }
    return started.operation;
  };
  PlaneOperation* const first = send_until_under_way('a');
  while (there_.comm.heard.size() < here_.comm.texts.size() || !here_.transport.Arm()) {
    here_.transport.Progress();
    there_.comm.Progress();
  }
  here_.transport.Awake();
  EXPECT_TRUE(here_.comm.sent.empty()) << "its end is kept";
  here_.plane->TakeOver(first, nullptr);
  here_.comm.Progress();
  PlaneOperation* const second = send_until_under_way('b');
  ASSERT_EQ(second, first) << "it is used again";
  here_.plane->TakeOver(second, nullptr);
  here_.comm.texts.back().assign(8000, 'x');
  Await([&] { return there_.comm.heard.size() == here_.comm.texts.size(); });
  EXPECT_EQ(there_.comm.heard.back(), std::string(8000, 'b'));
}

// A user that leaves while its messages are under way: they arrive, and it hears nothing more.
TEST_F(UcxPlaneTest, AUserMayLeaveWhileItSends) {
  PlanePeer* const peer = here_.transport.Connect(*there_.plane);
  size_t count = 0;
  const std::string text(8000, 'm');
  while (here_.comm.Send(peer, text, &count).how != UcxPlane::How::kUnderWay) ++count;
  here_.plane->Detach(&here_.comm);
  here_.comm.texts.back().assign(8000, 'x');
  while (there_.comm.heard.size() < count + 1) {
    here_.transport.Progress();
    there_.comm.Progress();
  }
  EXPECT_EQ(there_.comm.heard.back(), std::string(8000, 'm'));
  EXPECT_TRUE(here_.comm.sent.empty());
  here_.plane->Attach(PlaneUse::kComm, &here_.comm);
}

// A peer that stands still costs what was under way to it, but not ever more.
TEST_F(UcxPlaneTest, NobodyConnectsToAPeerThatDoesNotTakeWhatWasSent) {
  PlanePeer* const peer = here_.comm.Connect(*there_.plane);
  here_.comm.Send(peer, "begin");
  Await([&] { return !there_.comm.heard.empty(); });
  int cookie = 0;
  size_t left = 0;
  while (left <= UcxPlane::kLeftBytesMax) {
    EXPECT_TRUE(here_.plane->Connect(there_.plane->address()).ok());
    here_.plane->Release(peer);
    const UcxPlane::Started sent = here_.comm.Send(peer, std::string(60'000, 'm'), &cookie);
    if (sent.how != UcxPlane::How::kUnderWay) continue;
    here_.plane->TakeOver(sent.operation, nullptr);
    here_.comm.texts.pop_back();
    left += 60'000;
  }
  const auto refused = here_.plane->Connect(there_.plane->address());
  EXPECT_TRUE(absl::IsUnavailable(refused.status())) << refused.status();
  EXPECT_FALSE(here_.plane->IsLost(peer)) << "those who have it keep it";
  here_.comm.Send(peer, "end");
  Await([&] { return there_.comm.heard.back() == "end"; });
  EXPECT_EQ(here_.comm.Connect(*there_.plane), peer);
}

TEST_F(UcxPlaneTest, APeerThatIsCutIsLostForAllAndForgottenWithItsLastUser) {
  PlanePeer* const lost = here_.plane->Connect(there_.plane->address()).value();
  ASSERT_EQ(here_.plane->Connect(there_.plane->address()).value(), lost);
  const uint64_t losses = here_.plane->losses();
  EXPECT_FALSE(here_.plane->IsLost(lost));
  here_.plane->Cut(lost);
  EXPECT_TRUE(here_.plane->IsLost(lost));
  EXPECT_EQ(here_.plane->losses(), losses + 1);
  EXPECT_EQ(here_.comm.Send(lost, "late").how, UcxPlane::How::kFailed);
  PlanePeer* const again = here_.comm.Connect(*there_.plane);
  EXPECT_NE(again, lost);
  EXPECT_EQ(here_.plane->peers(), 2u) << "one user has the lost one still";
  here_.plane->Release(lost);
  EXPECT_EQ(here_.plane->peers(), 2u);
  here_.plane->Release(lost);
  while (here_.plane->peers() > 1) here_.comm.Progress();
  here_.comm.Send(again, "heard");
  Await([&] { return !there_.comm.heard.empty(); });
  EXPECT_EQ(there_.comm.heard, std::vector<std::string>{"heard"});
}

// The other user may find it between this one's look at losses() and its sleep.
TEST_F(UcxPlaneTest, AUserThatHasNotSeenALossDoesNotSleep) {
  PlanePeer* const peer = here_.comm.Connect(*there_.plane);
  here_.comm.Send(peer, "begin");
  Await([&] { return !there_.comm.heard.empty(); });
  here_.plane->Cut(peer);
  while (!here_.transport.Arm()) here_.transport.Progress();
  here_.transport.Awake();
  EXPECT_FALSE(here_.comm.Arm()) << "nothing else is to be done";
  EXPECT_TRUE(here_.comm.Arm());
}

// UCX refuses to start a put from nowhere, as one for which it has no memory.
TEST_F(UcxPlaneTest, APutThatCannotBeStartedHereLosesNobody) {
  PlanePeer* const peer = here_.comm.Connect(*there_.plane);
  const std::span<const std::byte> nowhere(static_cast<const std::byte*>(nullptr), 8);
  EXPECT_EQ(here_.plane->Put(&here_.transport, peer, nowhere, 0, nullptr, nullptr).how,
            UcxPlane::How::kFailed);
  EXPECT_FALSE(here_.plane->IsLost(peer));
  here_.comm.Send(peer, "heard");
  Await([&] { return !there_.comm.heard.empty(); });
}

// A process with a plane, that moves messages until it is killed. A message to it is an address, to
// which it answers.
class OtherProcess {
 public:
  // REQUIRES: this process has no plane yet.
  OtherProcess() {
    int fds[2];
    SKEIN_CHECK(pipe(fds) == 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      Process process;
      process.comm.on_message = [&process] {
        PlanePeer* const from = process.plane->Connect(process.comm.heard.back()).value();
        process.comm.Send(from, "answer");
      };
      const std::string& address = process.plane->address();
      SKEIN_CHECK(write(fds[1], address.data(), address.size()) > 0);
      while (true) process.comm.Progress();
    }
    address_.resize(4096);
    const ssize_t bytes = read(fds[0], address_.data(), address_.size());
    SKEIN_CHECK(bytes > 0);
    address_.resize(static_cast<size_t>(bytes));
    close(fds[0]);
    close(fds[1]);
  }
  ~OtherProcess() { Kill(); }
  void Kill() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, -1), nullptr, 0);
  }
  const std::string& address() const { return address_; }

 private:
  pid_t pid_ = -1;
  std::string address_;
};

TEST(LostPeerTest, IsCutAtTheNextConnect) {
  OtherProcess other;
  Process here;
  PlanePeer* const lost = here.plane->Connect(other.address()).value();
  here.comm.Send(lost, here.plane->address());
  // UCX notices the end of a process to which its connection is complete.
  while (here.comm.heard.empty()) here.comm.Progress();
  other.Kill();
  while (!here.plane->IsLost(lost)) here.comm.Progress();
  EXPECT_NE(here.plane->InfoOf(lost), "") << "UCX has its endpoint still";
  EXPECT_FALSE(here.plane->Connect(other.address()).ok()) << "its memory is gone";
  EXPECT_EQ(here.plane->InfoOf(lost), "");
  here.plane->Release(lost);
}

TEST_F(UcxPlaneTest, WhatNobodyUsesThereIsDropped) {
  PlanePeer* const peer = here_.comm.Connect(*there_.plane);
  there_.plane->Detach(&there_.comm);
  here_.comm.Send(peer, "to nobody");
  here_.transport.Send(peer, "end");
  while (there_.transport.heard.empty()) {
    here_.comm.Progress();
    there_.transport.Progress();
  }
  there_.plane->Attach(PlaneUse::kComm, &there_.comm);
  there_.comm.Progress();
  EXPECT_TRUE(there_.comm.heard.empty());
}

}  // namespace
}  // namespace skein::engine
