// JobCore: offline jobs and the order in which their lines are computed. Pure: a shell
// (services/jobs/job_shell.h) owns the store, the routers' streams and the clock.
//
// Jobs are computed in the order of their ends (completion_window), and of two with one end the
// older first. Their lines are given to routers, in the order of line_order.h, while JobRoom's
// limit and the routers' room allow. A router has its lines until it answers or returns them, a
// later stream of it does not hold them, it was silent for a lease, or its stream broke and for
// away_us it opened no other; then they are given again. A line may so be answered twice: the first
// answer is kept, the later one is acknowledged and dropped.
//
// A job whose line is returned by a router (the cluster did not answer it: no instance of its model
// serves, say) is passed over for pass_us, twice as long at each further time, at most
// pass_max_us; then one line of it is tried at a time. The first answer ends that. So it does not
// keep the room from jobs behind it.
//
// A job ends when all its lines have results that are kept; when its time is up, or it is
// cancelled: then what routers compute is withdrawn, and what is being kept is waited for.
//
// For settle_us after the start no line is given: routers come and say what they hold for the
// orchestrator before this one.
//
// Invariants, by number (CheckInvariants names them):
//   1. A line is ready, given, being kept or done; the counts agree with that (JobLines).
//   2. A line is given if and only if exactly one router has it.
//   3. The results that are being kept are those of the lines in that state.
//   4. The index of jobs with ready lines is right.
//   5. Of a job that ends, no line is given.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/time.h"
#include "scheduler/jobs/job_events.h"
#include "scheduler/jobs/job_lines.h"
#include "scheduler/jobs/job_pace.h"
#include "scheduler/jobs/job_room.h"

namespace skein::scheduler::jobs {

struct JobCoreConfig {
  TimeUs lease_us = 30 * kSecondUs;  // of the lines of a router that is silent
  TimeUs away_us = 5 * kSecondUs;    // of one whose stream broke, until it opens another
  TimeUs settle_us = 2 * kSecondUs;
  TimeUs pass_us = kSecondUs / 2;
  TimeUs pass_max_us = 30 * kSecondUs;
  JobRoom::Config room = {};
};

struct JobProgress {
  bool checked = false;
  std::optional<JobEnd> end;  // how it is about to end
  LineCounts counts;
  int64_t running = 0;  // lines that routers compute
  int64_t left = 0;     // lines without a result that is kept
  double tokens_per_s = 0;
  double left_s = 0;  // 0: not known
  bool late = false;  // the estimate is past its end
};

struct JobSnapshot {
  std::map<uint64_t, JobProgress> jobs;  // that have not ended, by number
  int64_t in_flight = 0;                 // lines that routers compute
  int64_t limit = 0;                     // how many may be
  int64_t routers = 0;                   // connected
  // Since the start.
  uint64_t completed = 0;
  uint64_t failed = 0;
  uint64_t returned = 0;   // by routers, or for want of them
  uint64_t duplicate = 0;  // later answers, which were dropped
};

class JobCore {
 public:
  explicit JobCore(const JobCoreConfig& config);

  // Total: any event in any state is safe.
  std::vector<JobEffect> Handle(const JobEvent& event, TimeUs now);
  // When the next JobTick is due, kNever if none is.
  TimeUs NextDeadline() const;
  absl::Status CheckInvariants() const;
  JobSnapshot Snapshot(TimeUs now) const;
  // Lines of a job that wait to be given to a router. 0 of one that ends, or is not there.
  int64_t Waiting(uint64_t job) const;
  // Whether the router of this stream is to compute this line.
  bool Gives(uint64_t stream, const LineKey& key) const;

 private:
  struct Job {
    TimeUs expires = kNever;
    bool checked = false;
    std::optional<JobEnd> end;
    bool end_ordered = false;
    JobLines lines;
    LineCounts counts;
    JobPace pace;
    int passes = 0;  // since its latest answer
    TimeUs passed_until = 0;
  };
  struct Router {
    uint64_t stream = 0;  // 0: broken
    int64_t room = 0;
    TimeUs until_us = 0;  // of its lease
    std::set<LineKey> lines;
  };
  struct Keeping {
    bool ok = false;
    LineTokens tokens;
    std::vector<uint64_t> streams;  // that are told when it is kept
  };
  using JobOrder = std::pair<TimeUs, uint64_t>;  // a job's end, its number

  void On(const AddJob& event);
  void On(const JobChecked& event);
  void On(const JobGone& event);
  void On(const CancelJob& event);
  void On(const RouterConnected& event);
  void On(const RouterDisconnected& event);
  void On(const RouterSpoke& event) { Renew(event.stream); }
  void On(const LineAnswered& event);
  void On(const LineReturned& event);
  void On(const ResultKept& event);
  void On(const LoadSeen& event);
  void On(const StoreStands& event) { store_stands_ = event.ok; }
  void On(const JobTick&) {}

  Job* Find(uint64_t job);
  Router* Renew(uint64_t stream);  // the router of the stream, if it is known
  // Nobody else is to compute it: the job runs, and the line is ready.
  bool IsReady(const LineKey& key);
  void Give(Router* router, const LineKey& key);
  // The router does not have it any more; its state is the caller's.
  void Release(Router* router, const LineKey& key);
  void TakeBack(Router* router, const LineKey& key);
  void TakeBackAll(Router* router);
  void Claim(Router* router, const LineKey& key);  // of RouterConnected::held
  void BeginEnd(uint64_t number, Job* job, JobEnd how);
  void WithdrawAll(uint64_t job);
  void EndIfDone(uint64_t number, Job* job);
  void IndexReady(uint64_t number, const Job& job);

  void ExpireJobs();
  void ExpireRouters();
  void GiveLines();
  bool MayGive(const Job& job) const;
  Router* RouterWithRoom();

  const JobCoreConfig config_;
  TimeUs now_ = 0;
  TimeUs started_us_ = kNever;
  std::vector<JobEffect> effects_;
  bool store_stands_ = true;
  JobRoom room_;
  std::map<uint64_t, Job> jobs_;   // by number
  std::set<JobOrder> running_;     // jobs that are not about to end
  std::set<JobOrder> with_ready_;  // of those, the ones with ready lines
  std::map<uint64_t, Router> routers_;
  std::map<uint64_t, uint64_t> streams_;  // routers, by stream
  std::map<LineKey, Keeping> keeping_;
  int64_t in_flight_ = 0;
  uint64_t completed_ = 0, failed_ = 0, returned_ = 0, duplicate_ = 0;
};

}  // namespace skein::scheduler::jobs
