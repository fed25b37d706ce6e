#include "services/jobs/job_store.h"

#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/random_bits.h"
#include "services/jobs/job_store_internal.h"
#include "services/store/host_identity.h"

namespace skein::services {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kFormat = 1;
constexpr int64_t kBusyUs = 2'000'000;
constexpr uint32_t kFilesMax = 10'000;  // of one answer
constexpr size_t kIdBytesMax = 128;

constexpr char kIfDamaged[] =
    "move the folder of --jobs-dir away, or restore it from a copy; an empty one is begun anew";

constexpr char kTables[] = R"(
CREATE TABLE IF NOT EXISTS about (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  format INTEGER NOT NULL,
  writer INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS files (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id BLOB NOT NULL UNIQUE,
  purpose BLOB NOT NULL,
  expires INTEGER NOT NULL,
  deleted INTEGER NOT NULL,
  file BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id BLOB NOT NULL UNIQUE,
  input BLOB NOT NULL,
  output_expires INTEGER NOT NULL,
  ending INTEGER NOT NULL,
  ended INTEGER NOT NULL,
  status BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS lines (
  job INTEGER NOT NULL,
  line INTEGER NOT NULL,
  at INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  custom_id BLOB NOT NULL,
  prefix INTEGER NOT NULL,
  tokens INTEGER NOT NULL,
  PRIMARY KEY (job, line)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS results (
  job INTEGER NOT NULL,
  line INTEGER NOT NULL,
  status INTEGER NOT NULL,
  request_id BLOB NOT NULL,
  prompt INTEGER NOT NULL,
  cached INTEGER NOT NULL,
  output INTEGER NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (job, line));
CREATE INDEX IF NOT EXISTS open_jobs ON jobs (input) WHERE ended = 0;
)";

absl::Status CheckId(const std::string& id) {
  const bool good = !id.empty() && id.size() <= kIdBytesMax &&
                    std::all_of(id.begin(), id.end(), [](unsigned char c) {
                      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                             (c >= '0' && c <= '9') || c == '-' || c == '_';
                    });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("id: it is not 1 to ", kIdBytesMax, " letters, digits, '-' and '_'"));
}

// WAL needs memory that all processes share, so it is for a folder of this host. On a network file
// system the older journal is used.
absl::Status SetUp(SqliteFile* file, bool local) {
  const char* const wanted = local ? "wal" : "truncate";
  SqliteStatement mode(file, absl::StrCat("PRAGMA journal_mode = ", wanted));
  const auto found = mode.Step();
  if (!found.ok()) return found.status();
  return file->Run("PRAGMA synchronous = FULL");
}

absl::Status Damaged(const std::string& folder, const std::string& what) {
  return absl::FailedPreconditionError(
      absl::StrCat("--jobs-dir: the folder ", folder, " is damaged: ", what, "; ", kIfDamaged));
}

}  // namespace

absl::Status NoSuch(const char* what, const std::string& id) {
  return absl::NotFoundError(absl::StrCat("there is no ", what, " '", id, "'"));
}

JobStore::JobStore(Options options, SqliteFile file)
    : options_(std::move(options)), file_(std::move(file)) {}

JobStore::~JobStore() = default;

absl::StatusOr<std::unique_ptr<JobStore>> JobStore::Open(Options options) {
  const std::string& folder = options.folder;
  for (const char* part : {"", "/files", "/new"}) {
    if (absl::Status s = MakeFolder(folder + part); !s.ok()) return s;
  }
  auto file = SqliteFile::Open(folder + "/jobs.db", kIfDamaged);
  if (!file.ok()) return file.status();
  file->SetBusyTimeout(kBusyUs);
  const bool local = CheckLocalFolder(folder).ok();
  absl::Status status = SetUp(&*file, local);
  std::unique_ptr<JobStore> store(new JobStore(std::move(options), *std::move(file)));
  if (status.ok()) status = store->TakeOver();
  if (status.ok()) status = store->RemoveLeftovers();
  if (status.ok()) status = store->CheckFiles();
  if (!status.ok() && store->file_.Damaged()) {
    return Damaged(store->options_.folder, std::string(status.message()));
  }
  if (!status.ok()) return status;
  return store;
}

absl::Status JobStore::TakeOver() {
  if (absl::Status s = file_.Run("BEGIN IMMEDIATE"); !s.ok()) return s;
  absl::Status status = [this]() -> absl::Status {
    if (absl::Status s = file_.Run(kTables); !s.ok()) return s;
    absl::Status s =
        SqliteStatement(&file_, "INSERT OR IGNORE INTO about VALUES (1, ?, 0)").Bind(kFormat).Run();
    if (!s.ok()) return s;
    SqliteStatement about(&file_, "SELECT format, writer FROM about");
    const auto found = about.Step();
    if (!found.ok()) return found.status();
    if (about.Number(0) != kFormat) {
      return absl::FailedPreconditionError(
          absl::StrCat("--jobs-dir: the folder ", options_.folder, " has format ", about.Number(0),
                       ", and this version knows format ", kFormat, " only"));
    }
    writer_ = about.Number(1) + 1;
    if (!options_.leads()) return absl::AbortedError("this orchestrator does not lead any more");
    return SqliteStatement(&file_, "UPDATE about SET writer = ?").Bind(writer_).Run();
  }();
  if (status.ok()) {
    absl::Status committed = file_.Run("COMMIT");
    if (committed.ok()) return committed;
    file_.Run("ROLLBACK").IgnoreError();
    return committed;
  }
  const bool damaged = file_.Damaged();
  if (!damaged) file_.Run("ROLLBACK").IgnoreError();
  return status;
}

// Of a process that ended between two steps.
absl::Status JobStore::RemoveLeftovers() {
  std::error_code error;
  for (const auto& one : fs::directory_iterator(options_.folder + "/new", error)) {
    fs::remove(one.path(), error);
  }
  absl::Status status = Write([this] {
    return file_.Run(
        "DELETE FROM lines WHERE job IN (SELECT number FROM jobs WHERE ended = 1);"
        "DELETE FROM results WHERE job IN (SELECT number FROM jobs WHERE ended = 1)");
  });
  // A full disk is no reason to refuse: what is there can be read.
  return absl::IsResourceExhausted(status) ? absl::OkStatus() : status;
}

// Every file of the database is there and whole; others are removed.
absl::Status JobStore::CheckFiles() {
  std::set<std::string> known;
  SqliteStatement rows(&file_, "SELECT file FROM files");
  for (;;) {
    const auto found = rows.Step();
    if (!found.ok()) return found.status();
    if (!*found) break;
    v1::StoredFile file;
    if (!file.ParseFromString(rows.Bytes(0))) {
      return Damaged(options_.folder, "a row of jobs.db cannot be read");
    }
    struct stat stats = {};
    const bool whole = stat(PathOf(file.id()).c_str(), &stats) == 0 &&
                       static_cast<uint64_t>(stats.st_size) == file.bytes();
    if (!whole) {
      return Damaged(options_.folder,
                     absl::StrCat("the file files/", file.id(), " is not there, or not ",
                                  file.bytes(), " bytes long"));
    }
    known.insert(file.id());
  }
  std::error_code error;
  for (const auto& one : fs::directory_iterator(options_.folder + "/files", error)) {
    if (!known.contains(one.path().filename().string())) fs::remove(one.path(), error);
  }
  return absl::OkStatus();
}

absl::Status JobStore::Write(const std::function<absl::Status()>& body) {
  absl::Status status = file_.Run("BEGIN IMMEDIATE");
  if (status.ok()) {
    SqliteStatement about(&file_, "SELECT writer FROM about");
    const auto found = about.Step();
    status = found.status();
    if (status.ok() && (!*found || about.Number(0) != writer_)) {
      status = absl::AbortedError(
          absl::StrCat("another orchestrator has taken over the folder ", options_.folder));
    }
  }
  if (status.ok()) status = body();
  if (status.ok()) status = file_.Run("COMMIT");
  if (status.ok()) return status;
  const bool full = file_.Full();
  file_.Run("ROLLBACK").IgnoreError();
  if (!full) return status;
  return absl::ResourceExhaustedError(status.message());
}

void JobStore::LimitPagesForTest(int64_t pages) {
  SqliteStatement(&file_, absl::StrCat("PRAGMA max_page_count = ", std::max<int64_t>(pages, 1)))
      .Run()
      .IgnoreError();
}

int64_t JobStore::Now() const {
  return options_.now_s ? options_.now_s() : static_cast<int64_t>(std::time(nullptr));
}

std::string JobStore::PathOf(const std::string& id) const {
  return absl::StrCat(options_.folder, "/files/", id);
}

absl::StatusOr<std::unique_ptr<NewFile>> JobStore::BeginFile(const std::string& folder,
                                                             const std::string& id) {
  if (absl::Status good = CheckId(id); !good.ok()) return good;
  return NewFile::Create(absl::StrCat(folder, "/new/", id, ".", RandomHex()));
}

absl::StatusOr<std::optional<v1::StoredFile>> JobStore::FindFile(const std::string& id) {
  SqliteStatement rows(&file_, "SELECT file FROM files WHERE id = ? AND deleted = 0");
  const auto found = rows.Bind(id).Step();
  if (!found.ok()) return found.status();
  if (!*found) return std::optional<v1::StoredFile>();
  v1::StoredFile file;
  if (!file.ParseFromString(rows.Bytes(0))) {
    return Damaged(options_.folder, absl::StrCat("the row of the file ", id, " cannot be read"));
  }
  return std::optional(std::move(file));
}

absl::Status JobStore::InsertFile(const v1::StoredFile& file) {
  return SqliteStatement(&file_,
                         "INSERT INTO files (id, purpose, expires, deleted, file) VALUES "
                         "(?, ?, ?, 0, ?)")
      .Bind(file.id())
      .Bind(file.purpose())
      .Bind(file.expires_s())
      .Bind(file.SerializeAsString())
      .Run();
}

absl::StatusOr<v1::StoredFile> JobStore::AddFile(v1::StoredFile file, NewFile* content) {
  if (absl::Status good = CheckId(file.id()); !good.ok()) return good;
  auto found = FindFile(file.id());
  if (!found.ok()) return found.status();
  if (found->has_value()) return **std::move(found);
  const auto used = InputInUse(file.id());
  if (!used.ok()) return used.status();
  if (*used) return absl::AlreadyExistsError("id: a deleted file of this id is still in use");
  file.set_bytes(content->bytes());
  if (file.created_s() == 0) file.set_created_s(Now());
  absl::Status status = content->Publish(options_.folder + "/files", PathOf(file.id()));
  if (status.ok()) status = Write([&] { return InsertFile(file); });
  if (!status.ok()) return status;
  return file;
}

absl::StatusOr<v1::StoredFile> JobStore::GetFile(const std::string& id, const Owner& owner) {
  auto found = FindFile(id);
  if (!found.ok()) return found.status();
  if (!found->has_value() || !Owns(owner, **found)) return NoSuch("file", id);
  return **std::move(found);
}

absl::StatusOr<v1::ListFilesResponse> JobStore::ListFiles(const v1::ListFilesRequest& request) {
  const uint32_t limit = request.limit() == 0 ? kFilesMax : std::min(request.limit(), kFilesMax);
  const Owner owner = request.has_owner() ? Owner(request.owner()) : std::nullopt;
  int64_t after = request.oldest_first() ? 0 : INT64_MAX;
  if (!request.after().empty()) {
    if (const auto last = GetFile(request.after(), owner); !last.ok()) return last.status();
    SqliteStatement row(&file_, "SELECT number FROM files WHERE id = ? AND deleted = 0");
    const auto found = row.Bind(request.after()).Step();
    if (!found.ok()) return found.status();
    if (!*found) return NoSuch("file", request.after());
    after = row.Number(0);
  }
  SqliteStatement rows(&file_, absl::StrCat("SELECT file FROM files WHERE deleted = 0 AND number ",
                                            request.oldest_first() ? "> ?" : "< ?",
                                            " AND (length(?) = 0 OR purpose = ?) ORDER BY number ",
                                            request.oldest_first() ? "ASC" : "DESC", " LIMIT ?"));
  // An owner's are few among all; -1: no limit.
  rows.Bind(after).Bind(request.purpose()).Bind(request.purpose());
  rows.Bind(owner.has_value() ? int64_t{-1} : int64_t{limit} + 1);
  v1::ListFilesResponse response;
  for (;;) {
    const auto found = rows.Step();
    if (!found.ok()) return found.status();
    if (!*found) return response;
    v1::StoredFile file;
    if (!file.ParseFromString(rows.Bytes(0))) {
      return Damaged(options_.folder, "a row of jobs.db cannot be read");
    }
    if (!Owns(owner, file)) continue;
    if (static_cast<uint32_t>(response.files_size()) == limit) {
      response.set_more(true);
      return response;
    }
    *response.add_files() = std::move(file);
  }
}

absl::StatusOr<bool> JobStore::InputInUse(const std::string& id) {
  SqliteStatement rows(&file_, "SELECT 1 FROM jobs WHERE input = ? AND ended = 0 LIMIT 1");
  return rows.Bind(id).Step();
}

absl::Status JobStore::ForgetFile(const std::string& id) {
  const auto used = InputInUse(id);
  if (!used.ok()) return used.status();
  return SqliteStatement(&file_, *used ? "UPDATE files SET deleted = 1 WHERE id = ?"
                                       : "DELETE FROM files WHERE id = ?")
      .Bind(id)
      .Run();
}

absl::Status JobStore::DeleteFile(const std::string& id, const Owner& owner) {
  if (const auto found = GetFile(id, owner); !found.ok()) return found.status();
  if (absl::Status s = Write([&] { return ForgetFile(id); }); !s.ok()) return s;
  const auto used = InputInUse(id);
  if (!used.ok()) return used.status();
  // The row is gone, so a content that stays is removed when the folder is opened again.
  std::error_code error;
  if (!*used) fs::remove(PathOf(id), error);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FileReader>> JobStore::ReadFile(const std::string& id,
                                                               const Owner& owner) {
  if (const auto found = GetFile(id, owner); !found.ok()) return found.status();
  return FileReader::Open(PathOf(id));
}

absl::Status JobStore::ExpireFiles() {
  std::vector<std::string> ids;
  {
    SqliteStatement rows(&file_,
                         "SELECT id FROM files WHERE (deleted = 0 AND expires != 0 AND expires <= "
                         "?) OR (deleted = 1 AND NOT EXISTS (SELECT 1 FROM jobs WHERE input = "
                         "files.id AND ended = 0))");
    rows.Bind(Now());
    for (;;) {
      const auto found = rows.Step();
      if (!found.ok()) return found.status();
      if (!*found) break;
      ids.push_back(rows.Bytes(0));
    }
  }
  for (const std::string& id : ids) {
    if (absl::Status s = Write([&] { return ForgetFile(id); }); !s.ok()) return s;
    const auto used = InputInUse(id);
    if (!used.ok()) return used.status();
    std::error_code error;
    if (!*used) fs::remove(PathOf(id), error);
  }
  return absl::OkStatus();
}

}  // namespace skein::services
