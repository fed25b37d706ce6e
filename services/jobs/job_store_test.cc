#include "services/jobs/job_store.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace skein::services {
namespace {

namespace core = scheduler::jobs;
namespace fs = std::filesystem;
using ::testing::HasSubstr;

class JobStoreTest : public ::testing::Test {
 protected:
  JobStoreTest() {
    std::string name = ::testing::TempDir() + "/jobs.XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~JobStoreTest() override { fs::remove_all(folder_); }

  // As after kill -9: nothing of the former store is used.
  void Reopen() {
    store_.reset();
    auto opened = JobStore::Open(Options());
    ASSERT_TRUE(opened.ok()) << opened.status();
    store_ = *std::move(opened);
  }
  JobStore::Options Options() {
    return {.folder = folder_, .jobs_max = 3, .now_s = [this] { return now_s_; }};
  }

  static std::string Line(int number) {
    return absl::StrCat(R"({"custom_id": "id-)", number,
                        R"(", "method": "POST", "url": "/v1/completions", "body": )",
                        R"({"model": "m", "prompt": "p)", number, "\"}}\n");
  }
  absl::StatusOr<v1::StoredFile> Upload(const std::string& id, const std::string& content,
                                        int64_t expires_s = 0) {
    auto file = JobStore::BeginFile(folder_, id);
    if (!file.ok()) return file.status();
    if (absl::Status s = (*file)->Append(content); !s.ok()) return s;
    if (absl::Status s = (*file)->Sync(); !s.ok()) return s;
    v1::StoredFile header;
    header.set_id(id);
    header.set_name("in.jsonl");
    header.set_purpose("batch");
    header.set_expires_s(expires_s);
    return store_->AddFile(header, file->get());
  }
  static v1::CreateJobRequest JobOf(const std::string& id, const std::string& input) {
    v1::CreateJobRequest request;
    request.set_id(id);
    request.set_input_file(input);
    request.set_endpoint("/v1/completions");
    request.set_window_s(100);
    (*request.mutable_metadata())["a"] = "b";
    return request;
  }
  // A job of so many lines whose input is checked.
  uint64_t RunningJob(int lines) {
    std::string content;
    for (int line = 1; line <= lines; ++line) content += Line(line);
    EXPECT_TRUE(Upload("file-1", content).ok());
    const auto job = store_->CreateJob(JobOf("batch_1", "file-1"));
    EXPECT_TRUE(job.ok()) << job.status();
    EXPECT_TRUE(CheckAll(job->number).ok);
    return job->number;
  }
  JobStore::Checked CheckAll(uint64_t number) {
    for (;;) {
      auto checked = store_->CheckInput(number);
      EXPECT_TRUE(checked.ok()) << checked.status();
      if (!checked.ok()) return {};
      if (checked->has_value()) return **checked;
    }
  }
  void EndAll(uint64_t number, core::JobEnd how) {
    for (;;) {
      const auto ended = store_->EndJob(number, how);
      ASSERT_TRUE(ended.ok()) << ended.status();
      if (*ended) return;
    }
  }
  static LineResult Answer(uint64_t job, uint64_t line, const std::string& text,
                           uint32_t status = 200) {
    return {{job, line}, status, "req", absl::StrCat("{\"text\": \"", text, "\"}"), {3, 1, 2}};
  }
  std::string Content(const std::string& id) {
    const auto file = store_->ReadFile(id);
    if (!file.ok()) return std::string(file.status().message());
    return *(*file)->Read(0, 1 << 20);
  }
  // custom_id to text or error code, of an output or error file.
  std::map<std::string, std::string> Answers(const std::string& id) {
    std::map<std::string, std::string> answers;
    for (const auto line : absl::StrSplit(Content(id), '\n', absl::SkipEmpty())) {
      const auto json = nlohmann::json::parse(line);
      const std::string text = json["error"].is_null()
                                   ? json["response"]["body"]["text"].get<std::string>()
                                   : json["error"]["code"].get<std::string>();
      EXPECT_TRUE(answers.emplace(json["custom_id"].get<std::string>(), text).second);
    }
    return answers;
  }
  std::vector<core::AddJob> Load() {
    auto jobs = store_->Load([](int64_t s) { return s * scheduler::kSecondUs; });
    EXPECT_TRUE(jobs.ok()) << jobs.status();
    std::vector<core::AddJob> events;
    events.reserve(jobs->size());
    for (auto& job : *jobs) events.push_back(std::move(job.event));
    return events;
  }
  v1::JobStatus StatusOf(const std::string& id) { return store_->GetJob(id)->status; }

  std::string folder_;
  int64_t now_s_ = 1000;
  std::unique_ptr<JobStore> store_;
};

TEST_F(JobStoreTest, ACheckThatIsRepeatedAfterItsEndLosesNoLine) {
  Reopen();
  const uint64_t job = RunningJob(3);
  const JobStore::Checked again = CheckAll(job);
  EXPECT_TRUE(again.ok);
  EXPECT_EQ(again.lines.size(), 3u);
}

TEST_F(JobStoreTest, AFileIsTheSameAfterAReopening) {
  Reopen();
  const auto made = Upload("file-1", "hello");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->bytes(), 5u);
  EXPECT_EQ(made->created_s(), 1000);
  Reopen();
  EXPECT_EQ(store_->GetFile("file-1")->SerializeAsString(), made->SerializeAsString());
  EXPECT_EQ(Content("file-1"), "hello");
  // The id makes a second call the same as the first one.
  now_s_ = 2000;
  EXPECT_EQ(Upload("file-1", "other")->created_s(), 1000);
  EXPECT_EQ(Content("file-1"), "hello");
}

TEST_F(JobStoreTest, AFileThatWasNotAddedLeavesNothing) {
  Reopen();
  auto begun = JobStore::BeginFile(folder_, "file-1");
  ASSERT_TRUE((*begun)->Append("half").ok());
  ASSERT_TRUE((*begun)->Sync().ok());
  std::ofstream(folder_ + "/files/file-2") << "published, but not in the database";
  Reopen();
  EXPECT_TRUE(absl::IsNotFound(store_->GetFile("file-1").status()));
  EXPECT_TRUE(fs::is_empty(folder_ + "/new"));
  EXPECT_TRUE(fs::is_empty(folder_ + "/files"));
}

TEST_F(JobStoreTest, IdsAreNoPaths) {
  Reopen();
  for (const std::string id : {"", "../x", "a/b", "a.b", std::string(129, 'a').c_str()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Upload(id, "x").status())) << id;
  }
}

TEST_F(JobStoreTest, ListsFilesInPages) {
  Reopen();
  for (int i = 1; i <= 3; ++i) ASSERT_TRUE(Upload(absl::StrCat("file-", i), "x").ok());
  v1::ListFilesRequest request;
  request.set_limit(2);
  auto page = store_->ListFiles(request);
  ASSERT_EQ(page->files_size(), 2);
  EXPECT_TRUE(page->more());
  EXPECT_EQ(page->files(0).id(), "file-3");
  request.set_after("file-2");
  page = store_->ListFiles(request);
  ASSERT_EQ(page->files_size(), 1);
  EXPECT_EQ(page->files(0).id(), "file-1");
  request.Clear();
  request.set_oldest_first(true);
  request.set_purpose("batch");
  EXPECT_EQ(store_->ListFiles(request)->files(0).id(), "file-1");
  request.set_purpose("other");
  EXPECT_EQ(store_->ListFiles(request)->files_size(), 0);
  request.set_after("file-9");
  EXPECT_TRUE(absl::IsNotFound(store_->ListFiles(request).status()));
}

// What belongs to another owner is not there, whichever call asks for it.
TEST_F(JobStoreTest, FilesAndJobsAreThereForTheirOwnersAlone) {
  Reopen();
  for (const auto& [id, owner] : {std::pair("file-1", "a"), std::pair("file-2", "b"),
                                  std::pair("file-3", ""), std::pair("file-4", "a")}) {
    v1::StoredFile file;
    file.set_id(id);
    file.set_purpose("batch");
    file.set_owner(owner);
    auto content = JobStore::BeginFile(folder_, id);
    ASSERT_TRUE(content.ok() && (*content)->Append(Line(1)).ok() && (*content)->Sync().ok());
    ASSERT_TRUE(store_->AddFile(file, content->get()).ok());
  }
  EXPECT_TRUE(absl::IsNotFound(store_->GetFile("file-1", "b").status()));
  EXPECT_TRUE(absl::IsNotFound(store_->GetFile("file-1", "").status()));
  EXPECT_TRUE(absl::IsNotFound(store_->ReadFile("file-1", "b").status()));
  EXPECT_TRUE(absl::IsNotFound(store_->DeleteFile("file-1", "b")));
  EXPECT_TRUE(store_->GetFile("file-1", "a").ok());
  EXPECT_TRUE(store_->GetFile("file-1").ok()) << "an operator";
  v1::ListFilesRequest list;
  EXPECT_EQ(store_->ListFiles(list)->files_size(), 4);
  list.set_owner("");
  ASSERT_EQ(store_->ListFiles(list)->files_size(), 1);
  EXPECT_EQ(store_->ListFiles(list)->files(0).id(), "file-3");
  list.set_owner("a");
  list.set_limit(1);
  auto page = store_->ListFiles(list);
  ASSERT_EQ(page->files_size(), 1);
  EXPECT_TRUE(page->more());
  EXPECT_EQ(page->files(0).id(), "file-4");
  list.set_after("file-4");
  page = store_->ListFiles(list);
  EXPECT_FALSE(page->more());
  EXPECT_EQ(page->files(0).id(), "file-1");
  list.set_after("file-2");
  EXPECT_TRUE(absl::IsNotFound(store_->ListFiles(list).status()));

  v1::CreateJobRequest job = JobOf("batch_1", "file-1");
  job.set_owner("b");
  EXPECT_TRUE(absl::IsNotFound(store_->CreateJob(job).status()));
  job.set_owner("a");
  const auto made = store_->CreateJob(job);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE(absl::IsNotFound(store_->GetJob("batch_1", "b").status()));
  EXPECT_TRUE(absl::IsNotFound(store_->BeginCancel("batch_1", "").status()));
  EXPECT_TRUE(store_->GetJob("batch_1", "a").ok());
  v1::ListJobsRequest jobs;
  bool more = false;
  jobs.set_owner("b");
  EXPECT_TRUE(store_->ListJobs(jobs, &more)->empty());
  jobs.set_owner("a");
  EXPECT_EQ(store_->ListJobs(jobs, &more)->size(), 1u);
  EXPECT_TRUE(CheckAll(made->number).ok);
  ASSERT_TRUE(store_->KeepResults({Answer(made->number, 1, "x")}).ok());
  EndAll(made->number, core::JobEnd::kCompleted);
  const std::string output = StatusOf("batch_1").output_file();
  EXPECT_TRUE(store_->GetFile(output, "a").ok());
  EXPECT_TRUE(absl::IsNotFound(store_->GetFile(output, "b").status()));
}

TEST_F(JobStoreTest, FilesEndByOrderAndByTime) {
  Reopen();
  ASSERT_TRUE(Upload("file-1", "x").ok());
  ASSERT_TRUE(Upload("file-2", "x", 1500).ok());
  EXPECT_TRUE(store_->DeleteFile("file-1").ok());
  EXPECT_TRUE(absl::IsNotFound(store_->DeleteFile("file-1")));
  ASSERT_TRUE(store_->ExpireFiles().ok());
  EXPECT_TRUE(store_->GetFile("file-2").ok());
  now_s_ = 1500;
  ASSERT_TRUE(store_->ExpireFiles().ok());
  EXPECT_TRUE(absl::IsNotFound(store_->GetFile("file-2").status()));
  EXPECT_TRUE(fs::is_empty(folder_ + "/files"));
}

TEST_F(JobStoreTest, ARunningJobKeepsItsDeletedInput) {
  Reopen();
  const uint64_t job = RunningJob(2);
  ASSERT_TRUE(store_->DeleteFile("file-1").ok());
  EXPECT_TRUE(absl::IsNotFound(store_->GetFile("file-1").status()));
  Reopen();
  EXPECT_EQ(*store_->BodyOf({job, 2}), R"({"model":"m","prompt":"p2"})");
  EndAll(job, core::JobEnd::kCancelled);
  ASSERT_TRUE(store_->ExpireFiles().ok());
  EXPECT_FALSE(fs::exists(folder_ + "/files/file-1"));
}

TEST_F(JobStoreTest, EachLineOnceWhateverStepTheProcessDiesAfter) {
  Reopen();
  std::string content;
  for (int line = 1; line <= 5; ++line) content += Line(line);
  ASSERT_TRUE(Upload("file-1", content).ok());
  Reopen();
  const auto created = store_->CreateJob(JobOf("batch_1", "file-1"));
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_TRUE(created->fresh);
  const uint64_t job = created->number;
  Reopen();
  const auto again = store_->CreateJob(JobOf("batch_1", "file-1"));
  EXPECT_FALSE(again->fresh);
  EXPECT_EQ(again->status.SerializeAsString(), created->status.SerializeAsString());
  ASSERT_EQ(Load().size(), 1u);
  EXPECT_FALSE(Load()[0].checked);
  EXPECT_EQ(Load()[0].expires, 1100 * scheduler::kSecondUs);
  EXPECT_EQ(CheckAll(job).lines.size(), 5u);
  Reopen();
  EXPECT_TRUE(Load()[0].checked);
  EXPECT_EQ(Load()[0].lines.size(), 5u);
  EXPECT_EQ(StatusOf("batch_1").state(), v1::JOB_STATE_IN_PROGRESS);
  EXPECT_EQ(StatusOf("batch_1").model(), "m");
  ASSERT_TRUE(store_->KeepResults({Answer(job, 1, "one"), Answer(job, 2, "bad", 400)}).ok());
  Reopen();
  // The second answer of a line changes nothing, also within one commit.
  ASSERT_TRUE(store_
                  ->KeepResults({Answer(job, 1, "later"), Answer(job, 3, "three"),
                                 Answer(job, 3, "later"), Answer(job, 4, "four")})
                  .ok());
  Reopen();
  ASSERT_EQ(Load()[0].lines.size(), 1u);
  EXPECT_EQ(Load()[0].lines[0].line, 5u);
  EXPECT_EQ(Load()[0].counts, (core::LineCounts{3, 1, {9, 3, 6}}));
  ASSERT_TRUE(store_->KeepResults({Answer(job, 5, "five")}).ok());
  EndAll(job, core::JobEnd::kCompleted);
  for (int i = 0; i < 2; ++i) {
    const v1::JobStatus status = StatusOf("batch_1");
    EXPECT_EQ(status.state(), v1::JOB_STATE_COMPLETED);
    EXPECT_EQ(status.completed(), 4u);
    EXPECT_EQ(status.failed(), 1u);
    EXPECT_EQ(status.output_tokens(), 8u);
    EXPECT_EQ(Answers(status.output_file()),
              (std::map<std::string, std::string>{
                  {"id-1", "one"}, {"id-3", "three"}, {"id-4", "four"}, {"id-5", "five"}}));
    EXPECT_EQ(Answers(status.error_file()), (std::map<std::string, std::string>{{"id-2", "bad"}}));
    EXPECT_TRUE(Load().empty());
    Reopen();
  }
}

TEST_F(JobStoreTest, TheOutputIsWrittenAnewAfterADeathInItsMidst) {
  Reopen();
  const uint64_t job = RunningJob(700);  // several slices
  std::vector<LineResult> results;
  results.reserve(700);
  for (uint64_t line = 1; line <= 700; ++line) {
    results.push_back(Answer(job, line, absl::StrCat(line)));
  }
  ASSERT_TRUE(store_->KeepResults(results).ok());
  for (int slices = 1; slices < 4; ++slices) {
    for (int slice = 0; slice < slices; ++slice) {
      EXPECT_EQ(*store_->EndJob(job, core::JobEnd::kCompleted), false);
    }
    EXPECT_EQ(StatusOf("batch_1").state(), v1::JOB_STATE_FINALIZING);
    Reopen();
    ASSERT_EQ(Load().size(), 1u);
    EXPECT_EQ(Load()[0].end, core::JobEnd::kCompleted);
  }
  EndAll(job, core::JobEnd::kCompleted);
  EXPECT_EQ(Answers(StatusOf("batch_1").output_file()).size(), 700u);
  EXPECT_EQ(StatusOf("batch_1").error_file(), "");
  while (!*store_->Clean(job)) {
  }
  EXPECT_TRUE(absl::IsNotFound(store_->BodyOf({job, 1}).status()));
}

TEST_F(JobStoreTest, AnExpiredJobSaysWhichLinesWereNotAnswered) {
  Reopen();
  const uint64_t job = RunningJob(3);
  ASSERT_TRUE(store_->KeepResults({Answer(job, 2, "two")}).ok());
  EndAll(job, core::JobEnd::kExpired);
  const v1::JobStatus status = StatusOf("batch_1");
  EXPECT_EQ(status.state(), v1::JOB_STATE_EXPIRED);
  EXPECT_EQ(Answers(status.output_file()), (std::map<std::string, std::string>{{"id-2", "two"}}));
  EXPECT_EQ(
      Answers(status.error_file()),
      (std::map<std::string, std::string>{{"id-1", "batch_expired"}, {"id-3", "batch_expired"}}));
}

TEST_F(JobStoreTest, ACancelSurvivesAndKeepsWhatIsDone) {
  Reopen();
  const uint64_t job = RunningJob(3);
  ASSERT_TRUE(store_->KeepResults({Answer(job, 2, "two")}).ok());
  EXPECT_EQ(store_->BeginCancel("batch_1")->status.state(), v1::JOB_STATE_CANCELLING);
  EXPECT_TRUE(absl::IsNotFound(store_->BeginCancel("batch_2").status()));
  Reopen();
  EXPECT_EQ(Load()[0].end, core::JobEnd::kCancelled);
  EndAll(job, core::JobEnd::kCancelled);
  EXPECT_EQ(StatusOf("batch_1").state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(Answers(StatusOf("batch_1").output_file()).size(), 1u);
  EXPECT_EQ(StatusOf("batch_1").error_file(), "");
  EXPECT_EQ(store_->BeginCancel("batch_1")->status.state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(JobStoreTest, AWrongInputFailsTheJobWithTheLine) {
  Reopen();
  ASSERT_TRUE(Upload("file-1", Line(1) + Line(1)).ok());
  const auto job = store_->CreateJob(JobOf("batch_1", "file-1"));
  EXPECT_FALSE(CheckAll(job->number).ok);
  Reopen();
  const v1::JobStatus status = StatusOf("batch_1");
  EXPECT_EQ(status.state(), v1::JOB_STATE_FAILED);
  ASSERT_EQ(status.errors_size(), 1);
  EXPECT_EQ(status.errors(0).code(), "duplicate_custom_id");
  EXPECT_EQ(status.errors(0).line(), 2u);
  EXPECT_TRUE(Load().empty());
  EXPECT_TRUE(absl::IsFailedPrecondition(store_->BeginCancel("batch_1").status()));
}

TEST_F(JobStoreTest, BoundsTheJobsThatHaveNotEnded) {
  Reopen();
  ASSERT_TRUE(Upload("file-1", Line(1)).ok());
  for (int i = 1; i <= 3; ++i) {
    ASSERT_TRUE(store_->CreateJob(JobOf(absl::StrCat("batch_", i), "file-1")).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(store_->CreateJob(JobOf("batch_4", "file-1")).status()));
  EXPECT_TRUE(absl::IsNotFound(store_->CreateJob(JobOf("batch_5", "file-9")).status()));
  v1::ListJobsRequest request;
  request.set_limit(2);
  bool more = false;
  const auto jobs = store_->ListJobs(request, &more);
  ASSERT_EQ(jobs->size(), 2u);
  EXPECT_TRUE(more);
  EXPECT_EQ((*jobs)[0].status.id(), "batch_3");
}

TEST_F(JobStoreTest, TheFormerWriterIsFenced) {
  Reopen();
  const uint64_t job = RunningJob(2);
  auto successor = JobStore::Open(Options());
  ASSERT_TRUE(successor.ok()) << successor.status();
  EXPECT_TRUE(absl::IsAborted(store_->KeepResults({Answer(job, 1, "late")})));
  EXPECT_TRUE(absl::IsAborted(store_->CreateJob(JobOf("batch_2", "file-1")).status()));
  EXPECT_TRUE((*successor)->KeepResults({Answer(job, 1, "one")}).ok());
  // One that does not lead any more takes nothing.
  JobStore::Options former = Options();
  former.leads = [] { return false; };
  EXPECT_TRUE(absl::IsAborted(JobStore::Open(former).status()));
  EXPECT_TRUE((*successor)->KeepResults({Answer(job, 2, "two")}).ok());
}

TEST_F(JobStoreTest, ADamagedFolderIsRefusedByName) {
  Reopen();
  ASSERT_TRUE(Upload("file-1", "hello").ok());
  store_.reset();
  fs::resize_file(folder_ + "/files/file-1", 2);
  auto opened = JobStore::Open(Options());
  EXPECT_TRUE(absl::IsFailedPrecondition(opened.status()));
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("files/file-1"));
  for (const char* end : {"-wal", "-shm"}) fs::remove(folder_ + "/jobs.db" + end);
  std::ofstream(folder_ + "/jobs.db", std::ios::trunc) << std::string(8192, 'x');
  opened = JobStore::Open(Options());
  EXPECT_TRUE(absl::IsFailedPrecondition(opened.status())) << opened.status();
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr(folder_));
}

TEST_F(JobStoreTest, AJobWhoseInputCannotBeReadCanExpire) {
  Reopen();
  ASSERT_TRUE(Upload("file-1", Line(1)).ok());
  const uint64_t job = store_->CreateJob(JobOf("batch_1", "file-1"))->number;
  fs::rename(folder_ + "/files/file-1", folder_ + "/away");
  EXPECT_FALSE(store_->CheckInput(job).ok());
  EndAll(job, core::JobEnd::kExpired);
  EXPECT_EQ(StatusOf("batch_1").state(), v1::JOB_STATE_EXPIRED);
  EXPECT_EQ(StatusOf("batch_1").lines(), 0u);
  // A check that comes late changes nothing, and neither does a second end.
  fs::rename(folder_ + "/away", folder_ + "/files/file-1");
  EXPECT_TRUE(CheckAll(job).lines.empty());
  EndAll(job, core::JobEnd::kCancelled);
  EXPECT_EQ(StatusOf("batch_1").state(), v1::JOB_STATE_EXPIRED);
}

TEST_F(JobStoreTest, AFullDatabaseLosesNothing) {
  Reopen();
  const uint64_t job = RunningJob(2);
  ASSERT_TRUE(store_->KeepResults({Answer(job, 1, "one")}).ok());
  store_->LimitPagesForTest(0);
  const std::string big(1 << 20, 'x');
  EXPECT_TRUE(absl::IsResourceExhausted(store_->KeepResults({Answer(job, 2, big)})));
  EXPECT_EQ(Load()[0].lines.size(), 1u);
  store_->LimitPagesForTest(1 << 20);
  EXPECT_TRUE(store_->KeepResults({Answer(job, 2, big)}).ok());
  EndAll(job, core::JobEnd::kCompleted);
  EXPECT_EQ(StatusOf("batch_1").completed(), 2u);
}

}  // namespace
}  // namespace skein::services
