// The shell of JobCore: offline jobs of the orchestrator that leads. It opens the store
// (job_store.h) when this process leads, and closes it when that is over.
//
// Threads: the core is on the loop; the store on a thread of its own, so that no disk delays the
// routers' streams; contents of files are written and read on a third one. Results that have come
// while the disk was busy are kept with one commit. A fourth thread asks four times a second who
// leads and how loaded the cluster is.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "grpcpp/grpcpp.h"
#include "proto/jobs.pb.h"
#include "scheduler/jobs/job_core.h"
#include "services/jobs/job_store.h"
#include "services/rpc/bidi_stream.h"
#include "services/rpc/status_map.h"
#include "services/shell/core_shell.h"
#include "services/store/task_thread.h"

namespace skein::services {

struct JobOptions {
  std::string folder;  // --jobs-dir
  uint64_t jobs_max = 1000;
  uint64_t file_bytes_max = uint64_t{200} << 20;
  scheduler::jobs::JobCoreConfig core;
};

// What operators see.
struct JobFigures {
  bool serves = false;
  scheduler::jobs::JobSnapshot snapshot;
  int64_t oldest_created_s = 0;  // of the jobs that have not ended; 0: there is none
  // Since the start of the process, by outcome: "completed", "expired", "cancelled", "failed".
  std::map<std::string, uint64_t> ended;
  bool refused = false;       // this process leads, and cannot use the folder
  uint64_t store_failed = 0;  // times since the start of the process; each was tried again
};

class JobShell : public CoreShell<JobShell, scheduler::jobs::JobCore, scheduler::jobs::JobEvent,
                                  scheduler::jobs::JobSnapshot> {
 public:
  using Stream = ServerStream<v1::RouterLines, v1::OrchestratorLines>;
  struct Hooks {
    // OK: this process leads at this moment; else what a call is refused with. Any thread.
    std::function<absl::Status()> standing;
    // May wait. On the thread that asks.
    std::function<scheduler::jobs::ClusterLoad()> load;
    // So many lines of each model wait to be computed. At each look at the load, and once with 0
    // when a model has no job any more, or no job is served. On the loop; must not block. Empty:
    // nobody asks.
    std::function<void(const std::string& model, int64_t lines)> waiting = nullptr;
  };
  static constexpr std::chrono::milliseconds kLookEvery{250};
  static constexpr char kNotOpenYet[] = "the store of jobs is being opened";
  static constexpr size_t kStreamsMax = 1024;
  static constexpr int kCallsMax = 1024;  // that wait for the store; more are refused

  JobShell(JobOptions options, Hooks hooks);
  ~JobShell();
  void Start();
  // Ends every call that waits with UNAVAILABLE.
  void Stop();

  const JobOptions& options() const { return options_; }
  // OK: jobs are served here; else what a call is refused with. Any thread.
  absl::Status Ready() const;

  // From gRPC threads. Runs `task` on the store's thread. If there is no store, too much waits, or
  // the process stops, `reactor` is finished instead.
  template <class Reactor>
  void OnStore(Reactor* reactor, std::function<void(JobStore*)> task) {
    if (waiting_.fetch_add(1) >= kCallsMax) {
      waiting_.fetch_sub(1);
      return reactor->Finish(ToGrpc(absl::ResourceExhaustedError("too many calls wait for jobs")));
    }
    auto call = std::make_shared<PendingCall<Reactor>>(reactor);
    store_thread_.Post([this, call, task = std::move(task)] {
      waiting_.fetch_sub(1);
      Reactor* const taken = call->Take();
      absl::Status status = Ready();
      if (status.ok() && store_ == nullptr) status = absl::UnavailableError(kNotOpenYet);
      if (!status.ok()) return taken->Finish(ToGrpc(status));
      task(store_.get());
    });
  }
  // The same on the thread of files, which does not use the store.
  template <class Reactor>
  void OnFiles(Reactor* reactor, std::function<void()> task) {
    auto call = std::make_shared<PendingCall<Reactor>>(reactor);
    files_thread_.Post([call, task = std::move(task)] {
      call->Take();
      task();
    });
  }
  // On the store's thread, within a task of OnStore: what the caller is told of a status of the
  // store. ABORTED (another orchestrator has taken the folder over) closes it, and is UNAVAILABLE:
  // the caller is to look for who leads.
  absl::Status Told(absl::Status status);
  // On the store's thread, within a task of OnStore.
  void Created(const JobStore::Job& job);
  void Cancelled(const JobStore::Job& job);
  // The progress of the jobs that have not ended, into what the store says.
  void FillProgress(const scheduler::jobs::JobSnapshot& snapshot, JobStore::Job* job) const;

  // From gRPC threads: a router's stream begins.
  Stream* Connect(grpc::CallbackServerContext* context);
  // Empty: it has stopped. Not from the loop.
  std::optional<JobFigures> Figures();

 private:
  friend CoreShell;

  // A call whose task waits. It is finished if the task is dropped.
  template <class Reactor>
  class PendingCall {
   public:
    explicit PendingCall(Reactor* reactor) : reactor_(reactor) {}
    ~PendingCall() {
      if (reactor_ == nullptr) return;
      reactor_->Finish(ToGrpc(absl::UnavailableError("the orchestrator is stopping")));
    }
    PendingCall(const PendingCall&) = delete;
    PendingCall& operator=(const PendingCall&) = delete;
    Reactor* Take() { return std::exchange(reactor_, nullptr); }

   private:
    Reactor* reactor_;
  };
  // Results that wait for a commit.
  struct CommitQueue {
    std::mutex mutex;
    std::deque<LineResult> results;
    bool posted = false;  // a commit will take them
  };
  enum class Phase { kClosed, kOpening, kOpen };
  struct Peer {
    std::shared_ptr<Stream> stream;
    bool named = false;
  };
  struct Known {  // a job that has not ended
    std::string id;
    std::string endpoint;
    int64_t created_s = 0;
    std::string model;  // empty: its input has not been read
    std::string owner;  // empty: nobody's
  };

  void Watch();  // the thread's
  void Refuse(absl::Status why);

  // On the loop.
  void See(const absl::Status& standing, const scheduler::jobs::ClusterLoad& load);
  void TellWaiting();
  void Open();
  void Opened(uint64_t term, const absl::Status& status, std::vector<JobStore::Loaded> jobs);
  void Close(const absl::Status& why);
  void Know(uint64_t number, const v1::JobStatus& status);
  void Gone(uint64_t number, const std::string& outcome);
  // The totals of the core that runs, if one does, are added.
  void AddTotals(scheduler::jobs::JobSnapshot* totals) const;
  void Later(std::function<void()> task);  // after a second, if the store is still open
  // `task` runs on the store's thread, if this store is open then.
  void Store(std::function<void(JobStore*)> task);
  // From the store's thread: `task` runs on the loop, if the store is still the same.
  void Back(uint64_t term, std::function<void()> task);
  // A failure of the store, which is tried again. `job`: 0 if it concerns several. From the store's
  // thread.
  void Failed(uint64_t term, const char* what, uint64_t job, const absl::Status& status,
              std::function<void()> again);

  void On(const scheduler::jobs::CheckInput& effect);
  void On(const scheduler::jobs::GiveLine& effect);
  void On(const scheduler::jobs::WithdrawLine& effect);
  void On(const scheduler::jobs::AcknowledgeLine& effect);
  void On(const scheduler::jobs::KeepResult& effect);
  void On(const scheduler::jobs::DropResult& effect);
  void On(const scheduler::jobs::EndJob& effect);

  void CheckSlice(JobStore* store, uint64_t term, uint64_t number);
  void EndSlice(JobStore* store, uint64_t term, const scheduler::jobs::EndJob& effect);
  void CleanSlice(JobStore* store, uint64_t term, uint64_t number);
  void ReadBody(JobStore* store, uint64_t term, const scheduler::jobs::GiveLine& effect);
  void SendOrder(const scheduler::jobs::GiveLine& effect, const absl::StatusOr<std::string>& body);
  void PostCommit(const std::shared_ptr<CommitQueue>& queue);
  void Commit(JobStore* store, uint64_t term, const std::shared_ptr<CommitQueue>& queue);

  void Add(uint64_t call, const std::shared_ptr<Stream>& stream);
  void Take(uint64_t call, const v1::RouterLines& message);
  absl::Status TakeHello(uint64_t call, const v1::RouterLines::Hello& hello);
  absl::Status TakeResult(uint64_t call, const v1::RouterLines::Result& result);
  void Answer(uint64_t call, const scheduler::jobs::LineKey& key, LineResult result);
  void Write(uint64_t call, v1::OrchestratorLines message);
  // nullopt: the job is not known (any more).
  std::optional<scheduler::jobs::LineKey> KeyOf(const v1::LineId& id) const;
  void FillId(const scheduler::jobs::LineKey& key, v1::LineId* id) const;

  const JobOptions options_;
  const Hooks hooks_;
  std::atomic<int> waiting_{0};
  std::atomic<uint64_t> calls_{0};
  mutable std::mutex refusal_mutex_;
  absl::Status refusal_;  // why there is no store; OK: there is one

  // The loop's.
  Phase phase_ = Phase::kClosed;
  uint64_t term_ = 0;                  // counts openings
  scheduler::jobs::ClusterLoad load_;  // as of the last look
  int64_t open_at_us_ = 0;
  int64_t expire_at_us_ = 0;
  std::map<uint64_t, Known> known_;
  std::map<std::string, int64_t> lines_waiting_;  // by model, as told last; none is 0
  std::map<std::string, uint64_t, std::less<>> numbers_;
  std::map<uint64_t, Peer> peers_;          // by call
  std::map<uint64_t, LineResult> results_;  // that the core was told of, by payload
  uint64_t payloads_ = 0;
  std::vector<std::pair<int64_t, std::function<void()>>> later_;
  std::map<std::string, uint64_t> ended_;
  bool refused_ = false;  // the last time that it was opened, by this leadership
  uint64_t store_failed_ = 0;
  scheduler::jobs::JobSnapshot before_;  // its totals: of the cores before this one

  std::shared_ptr<CommitQueue> commits_;  // of this opening

  // The store's thread's.
  std::unique_ptr<JobStore> store_;
  uint64_t store_term_ = 0;
  bool failed_ = false;  // the last commit

  std::mutex watch_mutex_;
  std::condition_variable watch_wake_;
  bool stopping_ = false;
  TaskThread store_thread_;
  TaskThread files_thread_;
  std::thread watch_;
};

}  // namespace skein::services
