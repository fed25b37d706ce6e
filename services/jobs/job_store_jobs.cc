// JobStore: jobs as clients and the core know them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/jobs/job_store_internal.h"

namespace skein::services {
namespace {

namespace core = scheduler::jobs;

constexpr uint32_t kJobsListed = 20;
constexpr uint32_t kJobsListedMax = 1000;

absl::Status CheckRequest(const v1::CreateJobRequest& request) {
  if (request.endpoint() != "/v1/chat/completions" && request.endpoint() != "/v1/completions") {
    return absl::InvalidArgumentError(absl::StrCat(
        "endpoint: '", request.endpoint(), "' is not '/v1/chat/completions' or '/v1/completions'"));
  }
  if (request.window_s() == 0 || request.window_s() > (uint64_t{1} << 32)) {
    return absl::InvalidArgumentError(
        absl::StrCat("window_s: ", request.window_s(), " is not between 1 and 2^32"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<JobStore::Job> JobStore::ReadJob(std::string_view where, uint64_t number,
                                                const std::string& id) {
  SqliteStatement row(&file_, absl::StrCat("SELECT number, status FROM jobs WHERE ",
                                           absl::string_view(where.data(), where.size())));
  if (id.empty()) {
    row.Bind(static_cast<int64_t>(number));
  } else {
    row.Bind(id);
  }
  const auto found = row.Step();
  if (!found.ok()) return found.status();
  if (!*found) return NoSuch("job", id.empty() ? absl::StrCat(number) : id);
  Job job{.number = static_cast<uint64_t>(row.Number(0))};
  if (job.status.ParseFromString(row.Bytes(1))) return job;
  return absl::FailedPreconditionError(absl::StrCat(
      "--jobs-dir: the folder ", options_.folder, " is damaged: a job of jobs.db cannot be read"));
}

absl::Status JobStore::PutJob(const Job& job) {
  return SqliteStatement(&file_, "UPDATE jobs SET status = ? WHERE number = ?")
      .Bind(job.status.SerializeAsString())
      .Bind(static_cast<int64_t>(job.number))
      .Run();
}

absl::Status JobStore::CheckRoom() {
  SqliteStatement row(&file_, "SELECT count(*) FROM jobs WHERE ended = 0");
  const auto found = row.Step();
  if (!found.ok()) return found.status();
  if (static_cast<uint64_t>(row.Number(0)) < options_.jobs_max) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "the limit of jobs that have not ended is reached (--jobs-max ", options_.jobs_max, ")"));
}

absl::StatusOr<JobStore::Job> JobStore::CreateJob(const v1::CreateJobRequest& request) {
  if (absl::Status good = CheckRequest(request); !good.ok()) return good;
  if (request.id().empty()) return absl::InvalidArgumentError("id: it is empty");
  const Owner owner = request.has_owner() ? Owner(request.owner()) : std::nullopt;
  auto before = GetJob(request.id());
  if (before.ok() || !absl::IsNotFound(before.status())) return before;
  if (const auto input = GetFile(request.input_file(), owner); !input.ok()) return input.status();
  if (absl::Status room = CheckRoom(); !room.ok()) return room;
  v1::JobStatus status;
  status.set_id(request.id());
  status.set_input_file(request.input_file());
  status.set_endpoint(request.endpoint());
  status.set_window_s(request.window_s());
  *status.mutable_metadata() = request.metadata();
  status.set_owner(request.owner());
  status.set_state(v1::JOB_STATE_VALIDATING);
  status.set_created_s(Now());
  status.set_expires_s(Now() + static_cast<int64_t>(request.window_s()));
  absl::Status kept = Write([&] {
    return SqliteStatement(&file_,
                           "INSERT INTO jobs (id, input, output_expires, ending, ended, status) "
                           "VALUES (?, ?, ?, 0, 0, ?)")
        .Bind(request.id())
        .Bind(request.input_file())
        .Bind(static_cast<int64_t>(request.output_expires_after_s()))
        .Bind(status.SerializeAsString())
        .Run();
  });
  if (!kept.ok()) return kept;
  auto job = GetJob(request.id());
  if (job.ok()) job->fresh = true;
  return job;
}

absl::StatusOr<JobStore::Job> JobStore::GetJob(const std::string& id, const Owner& owner) {
  if (id.empty()) return NoSuch("job", id);
  auto job = ReadJob("id = ?", 0, id);
  if (job.ok() && !Owns(owner, job->status)) return NoSuch("job", id);
  return job;
}

absl::StatusOr<std::vector<JobStore::Job>> JobStore::ListJobs(const v1::ListJobsRequest& request,
                                                              bool* more) {
  *more = false;
  const uint32_t limit =
      request.limit() == 0 ? kJobsListed : std::min(request.limit(), kJobsListedMax);
  const Owner owner = request.has_owner() ? Owner(request.owner()) : std::nullopt;
  int64_t before = INT64_MAX;
  if (!request.after().empty()) {
    const auto after = GetJob(request.after(), owner);
    if (!after.ok()) return after.status();
    before = static_cast<int64_t>(after->number);
  }
  SqliteStatement rows(
      &file_, "SELECT number, status FROM jobs WHERE number < ? ORDER BY number DESC LIMIT ?");
  // An owner's are few among all; -1: no limit.
  rows.Bind(before).Bind(owner.has_value() ? int64_t{-1} : int64_t{limit} + 1);
  std::vector<Job> jobs;
  for (;;) {
    const auto found = rows.Step();
    if (!found.ok()) return found.status();
    if (!*found) return jobs;
    Job job{.number = static_cast<uint64_t>(rows.Number(0))};
    if (!job.status.ParseFromString(rows.Bytes(1))) {
      return absl::FailedPreconditionError(absl::StrCat("--jobs-dir: the folder ", options_.folder,
                                                        " is damaged: job ", job.number,
                                                        " of jobs.db cannot be read"));
    }
    if (!Owns(owner, job.status)) continue;
    if (jobs.size() == limit) {
      *more = true;
      return jobs;
    }
    jobs.push_back(std::move(job));
  }
}

absl::StatusOr<JobStore::Job> JobStore::BeginCancel(const std::string& id, const Owner& owner) {
  auto job = GetJob(id, owner);
  if (!job.ok()) return job;
  const v1::JobState state = job->status.state();
  if (state == v1::JOB_STATE_CANCELLING || state == v1::JOB_STATE_CANCELLED) return job;
  if (state != v1::JOB_STATE_VALIDATING && state != v1::JOB_STATE_IN_PROGRESS) {
    return absl::FailedPreconditionError(
        absl::StrCat("the job '", id, "' has ended, or is about to"));
  }
  job->status.set_state(v1::JOB_STATE_CANCELLING);
  job->status.set_cancelling_s(Now());
  if (absl::Status kept = Write([&] { return PutJob(*job); }); !kept.ok()) return kept;
  return job;
}

absl::StatusOr<std::vector<JobStore::Loaded>> JobStore::Load(const AtUs& at_us) {
  std::vector<uint64_t> numbers;
  {
    SqliteStatement rows(&file_, "SELECT number FROM jobs WHERE ended = 0 ORDER BY number");
    for (;;) {
      const auto found = rows.Step();
      if (!found.ok()) return found.status();
      if (!*found) break;
      numbers.push_back(static_cast<uint64_t>(rows.Number(0)));
    }
  }
  std::vector<Loaded> jobs;
  jobs.reserve(numbers.size());
  for (const uint64_t number : numbers) {
    auto job = ReadJob("number = ?", number, "");
    if (!job.ok()) return job.status();
    auto loaded = LoadJob(*job);
    if (!loaded.ok()) return loaded.status();
    loaded->expires = at_us(job->status.expires_s());
    jobs.push_back({std::move(job->status), *std::move(loaded)});
  }
  return jobs;
}

absl::StatusOr<core::AddJob> JobStore::LoadJob(const Job& job) {
  core::AddJob loaded{.job = job.number};
  if (job.status.state() == v1::JOB_STATE_VALIDATING) return loaded;
  loaded.checked = true;
  SqliteStatement row(&file_, "SELECT ending FROM jobs WHERE number = ?");
  const auto found = row.Bind(static_cast<int64_t>(job.number)).Step();
  if (!found.ok()) return found.status();
  if (*found && row.Number(0) > 0) {
    loaded.end = static_cast<core::JobEnd>(row.Number(0) - 1);
  } else if (job.status.state() == v1::JOB_STATE_CANCELLING) {
    loaded.end = core::JobEnd::kCancelled;
  }
  if (!loaded.end.has_value()) {
    auto lines = LinesLeft(job.number);
    if (!lines.ok()) return lines.status();
    loaded.lines = *std::move(lines);
  }
  if (absl::Status counted = Count(job.number, &loaded.counts); !counted.ok()) return counted;
  return loaded;
}

absl::StatusOr<std::vector<core::LineInfo>> JobStore::LinesLeft(uint64_t number) {
  SqliteStatement rows(&file_,
                       "SELECT line, prefix, tokens FROM lines WHERE job = ?1 AND NOT EXISTS "
                       "(SELECT 1 FROM results WHERE job = ?1 AND results.line = lines.line)");
  rows.Bind(static_cast<int64_t>(number));
  std::vector<core::LineInfo> lines;
  for (;;) {
    const auto found = rows.Step();
    if (!found.ok()) return found.status();
    if (!*found) return lines;
    lines.push_back({static_cast<uint64_t>(rows.Number(0)), static_cast<uint64_t>(rows.Number(1)),
                     rows.Number(2)});
  }
}

absl::Status JobStore::Count(uint64_t number, core::LineCounts* counts) {
  SqliteStatement row(&file_,
                      "SELECT coalesce(sum(status = 200), 0), coalesce(sum(status != 200), 0), "
                      "coalesce(sum((status = 200) * prompt), 0), "
                      "coalesce(sum((status = 200) * cached), 0), "
                      "coalesce(sum((status = 200) * output), 0) FROM results WHERE job = ?");
  const auto found = row.Bind(static_cast<int64_t>(number)).Step();
  if (!found.ok()) return found.status();
  const auto value = [&row](int column) { return static_cast<uint64_t>(row.Number(column)); };
  *counts = {value(0), value(1), {value(2), value(3), value(4)}};
  return absl::OkStatus();
}

}  // namespace skein::services
