// Routers that come, go, fall silent and answer twice, an orchestrator that restarts from what its
// store has, cancels and ends, in virtual time: every line of a completed job is kept once.
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include <gtest/gtest.h>
#include "scheduler/jobs/job_core.h"
#include "scheduler/vocabulary/mix64.h"

namespace skein::scheduler::jobs {
namespace {

constexpr uint64_t kRouters = 3;
constexpr int64_t kRoom = 5;

class World {
 public:
  explicit World(uint64_t seed) : state_(seed) { Restart(); }

  void Run(int steps) {
    for (int step = 0; step < steps; ++step) {
      now_ += static_cast<TimeUs>(Below(500)) * kMillisecondUs;
      Act();
      if (::testing::Test::HasFailure()) return;
    }
  }

  int completed() const { return completed_; }
  // No further faults: all jobs end.
  void Settle() {
    for (int step = 0; step < 20'000 && !LiveJobs().empty(); ++step) {
      now_ += 200 * kMillisecondUs;
      for (uint64_t router = 1; router <= kRouters; ++router) {
        if (routers_[router].stream == 0) Connect(router);
        AnswerOne(router);
      }
      KeepOne();
      Do(LoadSeen{{.instances = 4, .waiting = 0, .free_kv = 1}});
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_TRUE(LiveJobs().empty()) << "a job does not end";
  }

 private:
  struct StoredJob {
    std::vector<LineInfo> lines;
    std::map<uint64_t, int> kept;  // how often, by line
    bool checked = false;
    std::optional<JobEnd> end;  // durable
    bool gone = false;
    TimeUs expires = kNever;
  };
  struct Router {
    uint64_t stream = 0;  // 0: broken
    std::set<LineKey> computing;
    std::set<LineKey> answered;  // and not acknowledged
  };

  uint64_t Below(uint64_t n) { return Mix64(state_ += kMix64Step) % n; }

  std::vector<uint64_t> LiveJobs() const {
    std::vector<uint64_t> live;
    for (const auto& [number, job] : store_) {
      if (!job.gone) live.push_back(number);
    }
    return live;
  }

  void Do(const JobEvent& event) {
    const auto effects = core_->Handle(event, now_);
    const absl::Status status = core_->CheckInvariants();
    ASSERT_TRUE(status.ok()) << status;
    for (const JobEffect& effect : effects) {
      std::visit([this](const auto& one) { Carry(one); }, effect);
    }
  }
  void Carry(const CheckInput& effect) { checks_.push_back(effect.job); }
  void Carry(const GiveLine& effect) {
    const auto router = ByStream(effect.stream);
    ASSERT_NE(router, nullptr);
    ASSERT_FALSE(store_[effect.key.job].kept.contains(effect.key.line)) << "given though kept";
    router->computing.insert(effect.key);
    ASSERT_LE(static_cast<int64_t>(router->computing.size()), kRoom);
  }
  void Carry(const WithdrawLine& effect) {
    if (Router* const router = ByStream(effect.stream)) {
      router->computing.erase(effect.key);
      router->answered.erase(effect.key);
    }
  }
  void Carry(const AcknowledgeLine& effect) {
    if (Router* const router = ByStream(effect.stream)) router->answered.erase(effect.key);
  }
  void Carry(const KeepResult& effect) { keeping_.push_back(effect.key); }
  void Carry(const DropResult&) {}
  void Carry(const EndJob& effect) { ends_.push_back(effect); }

  Router* ByStream(uint64_t stream) {
    for (auto& [id, router] : routers_) {
      if (router.stream == stream) return &router;
    }
    return nullptr;
  }

  // The process dies and comes back with what the store has.
  void Restart() {
    core_ = std::make_unique<JobCore>(JobCoreConfig{.lease_us = 5 * kSecondUs});
    checks_.clear();
    keeping_.clear();
    ends_.clear();
    for (auto& [id, router] : routers_) router.stream = 0;
    Do(LoadSeen{{.instances = 4, .waiting = 0, .free_kv = 1}});
    for (const uint64_t number : LiveJobs()) {
      StoredJob& job = store_[number];
      AddJob event{.job = number, .expires = job.expires, .checked = job.checked, .end = job.end};
      for (const LineInfo& line : job.lines) {
        if (job.checked && !job.kept.contains(line.line)) event.lines.push_back(line);
      }
      Do(event);
    }
  }

  void Connect(uint64_t id) {
    Router& router = routers_[id];
    router.stream = ++streams_;
    RouterConnected hello{router.stream, id, kRoom, {}};
    hello.held.assign(router.computing.begin(), router.computing.end());
    hello.held.insert(hello.held.end(), router.answered.begin(), router.answered.end());
    const std::vector<LineKey> again(router.answered.begin(), router.answered.end());
    Do(hello);
    for (const LineKey& key : again) {
      if (router.answered.contains(key)) SendAnswer(id, key);
    }
  }

  void SendAnswer(uint64_t id, LineKey key) {
    Do(LineAnswered{routers_[id].stream, key, Below(10) != 0, {3, 0, 4}, 0});
  }

  void AnswerOne(uint64_t id) {
    Router& router = routers_[id];
    if (router.computing.empty()) return;
    auto it = router.computing.begin();
    std::advance(it, Below(router.computing.size()));
    const LineKey key = *it;
    router.computing.erase(it);
    router.answered.insert(key);
    if (router.stream != 0) SendAnswer(id, key);
  }

  // The store carries out one thing that it was asked for.
  void KeepOne() {
    if (!checks_.empty()) {
      const uint64_t number = checks_.front();
      checks_.pop_front();
      store_[number].checked = true;
      Do(JobChecked{number, store_[number].lines});
    }
    if (!keeping_.empty()) {
      const LineKey key = keeping_.front();
      keeping_.pop_front();
      ASSERT_EQ(++store_[key.job].kept[key.line], 1) << "a line was kept twice";
      if (Below(20) != 0)
        Do(ResultKept{key});
      else
        Restart();  // between the store's answer and the core
    }
    if (!ends_.empty()) {
      const EndJob end = ends_.front();
      ends_.pop_front();
      StoredJob& job = store_[end.job];
      job.end = end.how;
      job.gone = true;
      if (end.how == JobEnd::kCompleted) {
        ++completed_;
        ASSERT_EQ(job.kept.size(), job.lines.size()) << "a line was lost";
      }
      Do(JobGone{end.job});
    }
  }

  void Create() {
    const uint64_t number = store_.size() + 1;
    StoredJob& job = store_[number];
    const uint64_t lines = 1 + Below(40);
    job.lines.reserve(lines);
    for (uint64_t line = 1; line <= lines; ++line) {
      job.lines.push_back({line, Below(4), static_cast<int64_t>(Below(1000))});
    }
    if (Below(3) == 0) job.expires = now_ + static_cast<TimeUs>(Below(120)) * kSecondUs;
    Do(AddJob{.job = number, .expires = job.expires});
  }

  void Act() {
    const uint64_t id = 1 + Below(kRouters);
    Router& router = routers_[id];
    switch (Below(24)) {
      case 0:
        if (store_.size() < 12) Create();
        break;
      case 1:  // the router's stream breaks
        if (router.stream != 0) Do(RouterDisconnected{std::exchange(router.stream, 0)});
        break;
      case 2:  // it dies
        if (Below(3) != 0) break;
        if (router.stream != 0) Do(RouterDisconnected{router.stream});
        router = {};
        break;
      case 3:
        if (Below(4) == 0) Restart();
        break;
      case 4:
        if (const auto live = LiveJobs(); Below(10) == 0 && !live.empty()) {
          const uint64_t number = live[Below(live.size())];
          if (store_[number].checked && !store_[number].end.has_value()) {
            store_[number].end = JobEnd::kCancelled;
            Do(CancelJob{number});
          }
        }
        break;
      case 5:
        if (!router.computing.empty() && router.stream != 0) {
          const LineKey key = *router.computing.begin();
          router.computing.erase(key);
          Do(LineReturned{router.stream, key});
        }
        break;
      case 6:
        Do(LoadSeen{{.instances = 4, .waiting = Below(4) == 0 ? 2 : 0, .free_kv = 1}});
        break;
      case 7:
        if (router.stream != 0 && !router.answered.empty()) {  // it says it twice
          SendAnswer(id, LineKey(*router.answered.begin()));
        }
        break;
      case 8:
      case 9:
        if (router.stream == 0) Connect(id);
        break;
      case 10:
      case 11:
      case 12:
        Do(JobTick{});
        break;
      case 13:
      case 14:
      case 15:
        KeepOne();
        break;
      default:
        AnswerOne(id);
        KeepOne();
    }
  }

  uint64_t state_;
  TimeUs now_ = 1;
  uint64_t streams_ = 0;
  std::unique_ptr<JobCore> core_;
  std::map<uint64_t, StoredJob> store_;
  std::map<uint64_t, Router> routers_;
  std::deque<uint64_t> checks_;
  std::deque<LineKey> keeping_;
  std::deque<EndJob> ends_;
  int completed_ = 0;
};

TEST(JobCoreRandom, EveryLineIsKeptOnce) {
  int completed = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    world.Run(3000);
    if (HasFailure()) return;
    world.Settle();
    if (HasFailure()) return;
    completed += world.completed();
  }
  EXPECT_GT(completed, 200);
}

}  // namespace
}  // namespace skein::scheduler::jobs
