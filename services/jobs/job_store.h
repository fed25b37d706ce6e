// JobStore: files, offline jobs and the results of their lines, in a folder (--jobs-dir):
//
//   jobs.db     SQLite: what is known of files and jobs, the lines of running jobs, their results
//   files/ID    the contents of files
//   new/        files that are being written; emptied by the next one that opens the folder
//
// Whatever a call has returned OK for survives kill -9 and the loss of power. A result is kept
// once: a second one of the same line changes nothing.
//
// One process writes at a time. Whoever opens the folder takes it from the one before, whose calls
// fail with ABORTED from then on: the number of the writer is in the database, and every
// transaction looks at it. `leads` is asked while the database is locked for the takeover, so
// that a former leader cannot take the folder from its successor.
//
// Errors: RESOURCE_EXHAUSTED: the disk is full; nothing is lost, and the call may be repeated.
// UNAVAILABLE: the disk or another process is the cause. ABORTED: another process has the folder.
//
// Long work is done in slices, between which other calls are answered. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/jobs.pb.h"
#include "scheduler/jobs/job_events.h"
#include "services/jobs/input_check.h"
#include "services/jobs/job_file.h"
#include "services/store/sqlite.h"

namespace skein::services {

struct LineResult {
  scheduler::jobs::LineKey key;
  uint32_t status_code = 0;  // 0: no response, and `body` is an error object
  std::string request_id;
  std::string body;  // JSON
  scheduler::jobs::LineTokens tokens;

  bool ok() const { return status_code == 200; }
};

class JobStore {
 public:
  struct Options {
    std::string folder;
    std::function<bool()> leads = [] { return true; };
    uint64_t jobs_max = 1000;                  // that have not ended
    std::function<int64_t()> now_s = nullptr;  // seconds since 1970; null: the system's clock
  };
  struct Job {
    uint64_t number = 0;
    v1::JobStatus status;
    bool fresh = false;  // it was created by this call
  };

  // FAILED_PRECONDITION: the folder is damaged, or of a newer version; the message names what.
  static absl::StatusOr<std::unique_ptr<JobStore>> Open(Options options);
  ~JobStore();

  // Whose a file or a job has to be; empty: anyone's. What belongs to another one is not there.
  using Owner = std::optional<std::string>;

  // --- Files. NOT_FOUND names the id. Ids are letters, digits, '-' and '_', else INVALID_ARGUMENT.

  // For a file's content; on any thread, also while the store is used.
  static absl::StatusOr<std::unique_ptr<NewFile>> BeginFile(const std::string& folder,
                                                            const std::string& id);
  // `content`: synced. Returns the file that is there under this id, which may be an earlier one.
  absl::StatusOr<v1::StoredFile> AddFile(v1::StoredFile file, NewFile* content);
  absl::StatusOr<v1::StoredFile> GetFile(const std::string& id, const Owner& owner = {});
  absl::StatusOr<v1::ListFilesResponse> ListFiles(const v1::ListFilesRequest& request);
  // The content of a running job's input stays until the job has ended.
  absl::Status DeleteFile(const std::string& id, const Owner& owner = {});
  absl::StatusOr<std::unique_ptr<FileReader>> ReadFile(const std::string& id,
                                                       const Owner& owner = {});
  // Deletes those whose time is up.
  absl::Status ExpireFiles();

  // --- Jobs. NOT_FOUND as above, also for an input file that is not there.

  absl::StatusOr<Job> CreateJob(const v1::CreateJobRequest& request);
  absl::StatusOr<Job> GetJob(const std::string& id, const Owner& owner = {});
  // The newest first.
  absl::StatusOr<std::vector<Job>> ListJobs(const v1::ListJobsRequest& request, bool* more);
  // FAILED_PRECONDITION: it has ended.
  absl::StatusOr<Job> BeginCancel(const std::string& id, const Owner& owner = {});
  // Those that have not ended, by number. `at_us`: what a time in seconds since 1970 is in the
  // core's time.
  using AtUs = std::function<scheduler::TimeUs(int64_t)>;
  struct Loaded {
    v1::JobStatus status;
    scheduler::jobs::AddJob event;  // for the core
  };
  absl::StatusOr<std::vector<Loaded>> Load(const AtUs& at_us);

  // --- A job's life, by number.

  // Checks a piece of the input. Empty: call it again.
  struct Checked {
    bool ok = false;  // else the job has failed
    std::string model;
    std::vector<scheduler::jobs::LineInfo> lines;
  };
  absl::StatusOr<std::optional<Checked>> CheckInput(uint64_t number);
  // The body of a line's request.
  absl::StatusOr<std::string> BodyOf(const scheduler::jobs::LineKey& key);
  // All of them, or none.
  absl::Status KeepResults(const std::vector<LineResult>& results);
  // Writes a piece of the output. True: the job has ended.
  absl::StatusOr<bool> EndJob(uint64_t number, scheduler::jobs::JobEnd how);
  // Deletes some of what the database has of an ended job's lines. True: that was all.
  absl::StatusOr<bool> Clean(uint64_t number);

  // The database may have so many pages, or those that it has: a disk that is full.
  void LimitPagesForTest(int64_t pages);

 private:
  struct Check;
  struct Output;

  JobStore(Options options, SqliteFile file);

  absl::Status TakeOver();
  absl::Status CheckFiles();
  absl::Status RemoveLeftovers();
  // In a transaction that is this writer's.
  absl::Status Write(const std::function<absl::Status()>& body);
  int64_t Now() const;
  std::string PathOf(const std::string& id) const;

  absl::StatusOr<std::optional<v1::StoredFile>> FindFile(const std::string& id);
  absl::Status InsertFile(const v1::StoredFile& file);
  absl::Status ForgetFile(const std::string& id);
  absl::StatusOr<bool> InputInUse(const std::string& id);

  absl::StatusOr<Job> ReadJob(std::string_view where, uint64_t number, const std::string& id);
  absl::Status PutJob(const Job& job);
  absl::Status CheckRoom();
  absl::StatusOr<scheduler::jobs::AddJob> LoadJob(const Job& job);
  absl::Status Count(uint64_t number, scheduler::jobs::LineCounts* counts);

  absl::StatusOr<std::unique_ptr<Check>> BeginCheck(uint64_t number);
  absl::Status KeepLines(uint64_t number, const std::vector<CheckedLine>& lines);
  absl::StatusOr<std::optional<Checked>> EndCheck(uint64_t number, const InputCheck& check);
  absl::StatusOr<std::unique_ptr<Output>> BeginOutput(uint64_t number, scheduler::jobs::JobEnd how);
  absl::StatusOr<bool> WriteOutput(Output* output, scheduler::jobs::JobEnd how);
  absl::Status EndOutput(Output* output, scheduler::jobs::JobEnd how);
  // `files` has those that are published, or may be, also after a failure.
  absl::Status Publish(Output* output, std::vector<v1::StoredFile>* files);
  absl::Status EndWith(const Job& job, const std::vector<v1::StoredFile>& files);
  absl::StatusOr<bool> HasEnded(uint64_t number);
  absl::Status DropLines(uint64_t number);
  absl::StatusOr<std::vector<scheduler::jobs::LineInfo>> LinesLeft(uint64_t number);

  const Options options_;
  SqliteFile file_;
  int64_t writer_ = 0;
  std::map<uint64_t, std::unique_ptr<Check>> checks_;    // under way, by job
  std::map<uint64_t, std::unique_ptr<Output>> outputs_;  // likewise
};

}  // namespace skein::services
