// JobStore: a job's lines: their check, their results, and the output.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/random_bits.h"
#include "services/jobs/job_output.h"
#include "services/jobs/job_store_internal.h"

namespace skein::services {
namespace {

namespace core = scheduler::jobs;

constexpr size_t kCheckBytes = size_t{1} << 20;  // of one slice
constexpr int64_t kOutputLines = 200;
constexpr int64_t kOutputBytes = 4 << 20;  // about so many
constexpr int64_t kCleanLines = 1000;

v1::JobState StateOf(core::JobEnd how) {
  switch (how) {
    case core::JobEnd::kCompleted:
      return v1::JOB_STATE_COMPLETED;
    case core::JobEnd::kExpired:
      return v1::JOB_STATE_EXPIRED;
    case core::JobEnd::kCancelled:
      break;
  }
  return v1::JOB_STATE_CANCELLED;
}

void SetEnd(core::JobEnd how, int64_t now_s, v1::JobStatus* status) {
  status->set_state(StateOf(how));
  if (how == core::JobEnd::kCompleted) status->set_completed_s(now_s);
  if (how == core::JobEnd::kExpired) status->set_expired_s(now_s);
  if (how == core::JobEnd::kCancelled) status->set_cancelled_s(now_s);
}

}  // namespace

// --- The check of the input.

absl::Status JobStore::DropLines(uint64_t number) {
  return SqliteStatement(&file_, "DELETE FROM lines WHERE job = ?")
      .Bind(static_cast<int64_t>(number))
      .Run();
}

absl::StatusOr<std::unique_ptr<JobStore::Check>> JobStore::BeginCheck(uint64_t number) {
  const auto job = ReadJob("number = ?", number, "");
  if (!job.ok()) return job.status();
  if (absl::Status s = Write([&] { return DropLines(number); }); !s.ok()) return s;
  auto file = FileReader::Open(PathOf(job->status.input_file()));
  if (!file.ok()) return file.status();
  auto check = std::make_unique<Check>(Check{InputCheck(job->status.endpoint()), nullptr});
  check->file = *std::move(file);
  return check;
}

absl::StatusOr<std::optional<JobStore::Checked>> JobStore::CheckInput(uint64_t number) {
  auto kept = checks_.extract(number);  // back only if it goes on
  // Looked at before anything is deleted: the previous call may have committed the job's end and
  // then failed.
  const auto job = ReadJob("number = ?", number, "");
  if (!job.ok()) return job.status();
  const v1::JobState state = job->status.state();
  if (state == v1::JOB_STATE_IN_PROGRESS) {
    auto lines = LinesLeft(number);
    if (!lines.ok()) return lines.status();
    return std::optional<Checked>({.ok = true, .lines = *std::move(lines)});
  }
  if (state != v1::JOB_STATE_VALIDATING) {  // it has failed, or is to be cancelled
    return std::optional<Checked>({.ok = state != v1::JOB_STATE_FAILED, .lines = {}});
  }
  std::unique_ptr<Check> check;
  if (!kept.empty()) {
    check = std::move(kept.mapped());
  } else {
    auto begun = BeginCheck(number);
    if (!begun.ok()) return begun.status();
    check = *std::move(begun);
  }
  const auto piece = check->file->Read(check->at, kCheckBytes);
  if (!piece.ok()) return piece.status();
  check->at += piece->size();
  check->check.Feed(*piece);
  if (piece->size() < kCheckBytes) check->check.End();
  const auto lines = check->check.TakeLines();
  if (check->check.errors().empty()) {
    if (absl::Status s = KeepLines(number, lines); !s.ok()) return s;
  }
  if (check->check.Ended()) return EndCheck(number, check->check);
  checks_.emplace(number, std::move(check));
  return std::optional<Checked>();
}

absl::Status JobStore::KeepLines(uint64_t number, const std::vector<CheckedLine>& lines) {
  if (lines.empty()) return absl::OkStatus();
  return Write([&]() -> absl::Status {
    for (const CheckedLine& line : lines) {
      absl::Status s =
          SqliteStatement(&file_, "INSERT OR IGNORE INTO lines VALUES (?, ?, ?, ?, ?, ?, ?)")
              .Bind(static_cast<int64_t>(number))
              .Bind(static_cast<int64_t>(line.line))
              .Bind(static_cast<int64_t>(line.at))
              .Bind(static_cast<int64_t>(line.bytes))
              .Bind(line.custom_id)
              .Bind(static_cast<int64_t>(line.prefix))
              .Bind(line.tokens)
              .Run();
      if (!s.ok()) return s;
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::optional<JobStore::Checked>> JobStore::EndCheck(uint64_t number,
                                                                    const InputCheck& check) {
  auto job = ReadJob("number = ?", number, "");
  if (!job.ok()) return job.status();
  const bool good = check.errors().empty();
  job->status.set_model(check.model());
  job->status.set_lines(good ? check.lines() : 0);
  if (good) {
    job->status.set_state(v1::JOB_STATE_IN_PROGRESS);
    job->status.set_in_progress_s(Now());
  } else {
    job->status.set_state(v1::JOB_STATE_FAILED);
    job->status.set_failed_s(Now());
    for (const v1::JobError& error : check.errors()) *job->status.add_errors() = error;
  }
  absl::Status kept = Write([&]() -> absl::Status {
    if (absl::Status s = PutJob(*job); !s.ok() || good) return s;
    return SqliteStatement(&file_, "UPDATE jobs SET ended = 1 WHERE number = ?")
        .Bind(static_cast<int64_t>(number))
        .Run();
  });
  if (!kept.ok()) return kept;
  Checked checked{.ok = good, .model = check.model(), .lines = {}};
  if (good) {
    auto lines = LinesLeft(number);
    if (!lines.ok()) return lines.status();
    checked.lines = *std::move(lines);
  }
  return std::optional(std::move(checked));
}

absl::StatusOr<std::string> JobStore::BodyOf(const core::LineKey& key) {
  SqliteStatement row(&file_,
                      "SELECT at, bytes, input FROM lines JOIN jobs ON number = job WHERE job = ? "
                      "AND line = ?");
  row.Bind(static_cast<int64_t>(key.job)).Bind(static_cast<int64_t>(key.line));
  const auto found = row.Step();
  if (!found.ok()) return found.status();
  if (!*found) return NoSuch("line", absl::StrCat(key.line));
  const auto file = FileReader::Open(PathOf(row.Bytes(2)));
  if (!file.ok()) return file.status();
  const auto text =
      (*file)->Read(static_cast<uint64_t>(row.Number(0)), static_cast<size_t>(row.Number(1)));
  if (!text.ok()) return text.status();
  return BodyOfLine(*text);
}

// --- Results.

absl::Status JobStore::KeepResults(const std::vector<LineResult>& results) {
  return Write([&]() -> absl::Status {
    for (const LineResult& one : results) {
      absl::Status s =
          SqliteStatement(&file_, "INSERT OR IGNORE INTO results VALUES (?, ?, ?, ?, ?, ?, ?, ?)")
              .Bind(static_cast<int64_t>(one.key.job))
              .Bind(static_cast<int64_t>(one.key.line))
              .Bind(int64_t{one.status_code})
              .Bind(one.request_id)
              .Bind(static_cast<int64_t>(one.tokens.prompt))
              .Bind(static_cast<int64_t>(one.tokens.cached))
              .Bind(static_cast<int64_t>(one.tokens.output))
              .Bind(one.body)
              .Run();
      if (!s.ok()) return s;
    }
    return absl::OkStatus();
  });
}

// --- The output.

absl::StatusOr<bool> JobStore::EndJob(uint64_t number, core::JobEnd how) {
  auto kept = outputs_.extract(number);  // back only if it goes on
  if (kept.empty()) {
    const auto ended = HasEnded(number);  // its check failed, or the call before this one ended it
    if (!ended.ok() || *ended) return ended;
  }
  std::unique_ptr<Output> output;
  if (!kept.empty()) {
    output = std::move(kept.mapped());
  } else {
    auto begun = BeginOutput(number, how);
    if (!begun.ok()) return begun.status();
    output = *std::move(begun);
  }
  const auto all = WriteOutput(output.get(), how);
  if (!all.ok()) return all.status();
  if (!*all) {
    outputs_.emplace(number, std::move(output));
    return false;
  }
  if (absl::Status s = EndOutput(output.get(), how); !s.ok()) return s;
  return true;
}

absl::StatusOr<bool> JobStore::HasEnded(uint64_t number) {
  SqliteStatement row(&file_, "SELECT 1 FROM jobs WHERE number = ? AND ended = 1");
  return row.Bind(static_cast<int64_t>(number)).Step();
}

absl::StatusOr<std::unique_ptr<JobStore::Output>> JobStore::BeginOutput(uint64_t number,
                                                                        core::JobEnd how) {
  auto job = ReadJob("number = ?", number, "");
  if (!job.ok()) return job.status();
  const bool unchecked = job->status.state() == v1::JOB_STATE_VALIDATING;
  checks_.erase(number);
  if (how != core::JobEnd::kCancelled) {
    job->status.set_state(v1::JOB_STATE_FINALIZING);
    if (job->status.finalizing_s() == 0) job->status.set_finalizing_s(Now());
  }
  absl::Status begun = Write([&]() -> absl::Status {
    if (absl::Status s = PutJob(*job); !s.ok()) return s;
    if (absl::Status s = unchecked ? DropLines(number) : absl::OkStatus(); !s.ok()) return s;
    return SqliteStatement(&file_, "UPDATE jobs SET ending = ? WHERE number = ?")
        .Bind(static_cast<int64_t>(how) + 1)
        .Bind(static_cast<int64_t>(number))
        .Run();
  });
  if (!begun.ok()) return begun;
  auto output = std::make_unique<Output>();
  SqliteStatement row(&file_, "SELECT output_expires FROM jobs WHERE number = ?");
  if (const auto found = row.Bind(static_cast<int64_t>(number)).Step(); !found.ok()) {
    return found.status();
  }
  output->expires_after_s = row.Number(0);
  output->job = *std::move(job);
  for (auto* file : {&output->answers, &output->errors}) {
    auto created = BeginFile(options_.folder, absl::StrCat("file-", RandomHex().substr(0, 24)));
    if (!created.ok()) return created.status();
    *file = *std::move(created);
  }
  return output;
}

absl::StatusOr<bool> JobStore::WriteOutput(Output* output, core::JobEnd how) {
  SqliteStatement rows(&file_,
                       "SELECT lines.line, custom_id, coalesce(status, -1), "
                       "coalesce(request_id, x''), coalesce(body, x'') FROM lines LEFT JOIN "
                       "results ON results.job = lines.job AND results.line = lines.line WHERE "
                       "lines.job = ? AND lines.line > ? ORDER BY lines.line LIMIT ?");
  rows.Bind(static_cast<int64_t>(output->job.number));
  rows.Bind(static_cast<int64_t>(output->last_line)).Bind(kOutputLines);
  int64_t bytes = 0;
  for (int64_t count = 0;; ++count) {
    if (bytes > kOutputBytes) return false;
    const auto found = rows.Step();
    if (!found.ok()) return found.status();
    if (!*found) return count < kOutputLines;
    OutputLine line{.job = output->job.status.id(),
                    .line = static_cast<uint64_t>(rows.Number(0)),
                    .custom_id = rows.Bytes(1),
                    .status_code = rows.Number(2),
                    .request_id = rows.Bytes(3),
                    .body = rows.Bytes(4)};
    output->last_line = line.line;
    if (line.status_code < 0) {  // it was not answered
      if (how != core::JobEnd::kExpired) continue;
      line.status_code = 0;
      line.body = ExpiredBody();
    }
    const std::string text = OutputText(line);
    bytes += static_cast<int64_t>(text.size());
    NewFile* const file = (line.status_code == 200 ? output->answers : output->errors).get();
    if (absl::Status s = file->Append(text); !s.ok()) return s;
  }
}

absl::Status JobStore::EndOutput(Output* output, core::JobEnd how) {
  v1::JobStatus& status = output->job.status;
  core::LineCounts counts;
  if (absl::Status s = Count(output->job.number, &counts); !s.ok()) return s;
  status.set_completed(counts.completed);
  status.set_failed(counts.failed);
  status.set_prompt_tokens(counts.tokens.prompt);
  status.set_cached_tokens(counts.tokens.cached);
  status.set_output_tokens(counts.tokens.output);
  SetEnd(how, Now(), &status);
  std::vector<v1::StoredFile> files;
  absl::Status ended = Publish(output, &files);
  if (ended.ok()) ended = EndWith(output->job, files);
  // The next try writes the files anew, so they are removed, except those that a commit has kept
  // although it reported a failure.
  for (const v1::StoredFile& file : files) {
    const bool kept = ended.ok() || FindFile(file.id()).value_or(file).has_value();
    if (!kept) unlink(PathOf(file.id()).c_str());
  }
  return ended;
}

absl::Status JobStore::Publish(Output* output, std::vector<v1::StoredFile>* files) {
  v1::JobStatus& status = output->job.status;
  for (const bool errors : {false, true}) {
    NewFile* const content = (errors ? output->errors : output->answers).get();
    if (content->bytes() == 0) continue;
    v1::StoredFile& file = files->emplace_back();
    file.set_id(absl::StrCat("file-", RandomHex().substr(0, 24)));
    file.set_name(absl::StrCat(status.id(), errors ? "_error.jsonl" : "_output.jsonl"));
    file.set_purpose("batch_output");
    file.set_owner(status.owner());
    file.set_bytes(content->bytes());
    file.set_created_s(Now());
    if (output->expires_after_s != 0) file.set_expires_s(Now() + output->expires_after_s);
    (errors ? status.mutable_error_file() : status.mutable_output_file())->assign(file.id());
    if (absl::Status s = content->Sync(); !s.ok()) return s;
    if (absl::Status s = content->Publish(options_.folder + "/files", PathOf(file.id())); !s.ok()) {
      return s;
    }
  }
  return absl::OkStatus();
}

absl::Status JobStore::EndWith(const Job& job, const std::vector<v1::StoredFile>& files) {
  return Write([&]() -> absl::Status {
    for (const v1::StoredFile& file : files) {
      if (absl::Status s = InsertFile(file); !s.ok()) return s;
    }
    if (absl::Status s = PutJob(job); !s.ok()) return s;
    return SqliteStatement(&file_, "UPDATE jobs SET ended = 1 WHERE number = ?")
        .Bind(static_cast<int64_t>(job.number))
        .Run();
  });
}

absl::StatusOr<bool> JobStore::Clean(uint64_t number) {
  const auto job = static_cast<int64_t>(number);
  int64_t changed = 0;
  for (const char* table : {"results", "lines"}) {
    absl::Status status = Write([&] {
      absl::Status s =
          SqliteStatement(&file_, absl::StrCat("DELETE FROM ", table,
                                               " WHERE job = ? AND line IN (SELECT line FROM ",
                                               table, " WHERE job = ? ORDER BY line LIMIT ?)"))
              .Bind(job)
              .Bind(job)
              .Bind(kCleanLines)
              .Run();
      changed = std::max(changed, file_.Changes());
      return s;
    });
    if (!status.ok()) return status;
  }
  return changed == 0;
}

}  // namespace skein::services
