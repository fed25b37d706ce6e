// ConsoleFeed: asks the orchestrators how their cells stand, and gives what it heard to the open
// pages. Between two looks it rests three times as long as the look took, but at least kPeriod and
// at most kRestMax. While no page is open it looks only for what has happened, so that a page that
// is opened after a fault shows it: without plans, and with rests of `idle_period`, or twenty
// times as long as the look took.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "nlohmann/json.hpp"
#include "services/console/console_events.h"
#include "services/console/console_pages.h"
#include "services/console/console_view.h"
#include "services/orchestrator_link/leader_calls.h"

namespace skein::services {

class ConsoleFeed {
 public:
  static constexpr std::chrono::milliseconds kPeriod{200};
  static constexpr std::chrono::milliseconds kRestMax{600};
  static constexpr std::chrono::milliseconds kTimeout{1000};  // of one call
  static constexpr int kRequests = 100;                       // the latest ones
  // Plans that are asked for at a look, of each cell: those that were asked for longest ago.
  static constexpr size_t kPlansAtOnce = 16;

  static constexpr int kIdleRests = 20;

  // `cells` and `pages` outlive it. `self`: members of the view that do not change. Of the first
  // cell come the jobs.
  ConsoleFeed(std::vector<std::unique_ptr<LeaderCalls>>* cells, ConsolePages* pages,
              nlohmann::json self, std::chrono::milliseconds idle_period);
  ~ConsoleFeed();  // Stop

  static int64_t NowMs();  // since 1970

  // A page was opened: looks at once. Any thread.
  void Wake();
  // The owner has cancelled the cells' calls before. Idempotent; not from the feed's thread.
  void Stop();

 private:
  // One cell, and when each request's plans were asked for, by the number of the look.
  struct Cell {
    CellReport report;
    std::map<std::string, uint64_t> asked;
  };

  void Run();
  void Look(bool watched);
  void Ask(LeaderCalls* calls, bool jobs, bool plans, Cell* cell);
  void AskPlans(LeaderCalls* calls, Cell* cell);

  std::vector<std::unique_ptr<LeaderCalls>>* const calls_;
  ConsolePages* const pages_;
  const nlohmann::json self_;
  const std::chrono::milliseconds idle_period_;
  // On the feed's thread:
  std::vector<Cell> cells_;
  uint64_t looks_ = 0;
  nlohmann::json view_ = nlohmann::json::object();
  ConsoleEvents events_;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool awake_ = false;     // guarded by mutex_
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;     // last: it uses the above
};

}  // namespace skein::services
