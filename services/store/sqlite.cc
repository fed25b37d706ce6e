#include "services/store/sqlite.h"

#include <sqlite3.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::services {

absl::StatusOr<SqliteFile> SqliteFile::Open(const std::string& path, std::string if_damaged) {
  sqlite3* file = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &file,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  SqliteFile opened(path, std::move(if_damaged), file);
  if (code != SQLITE_OK) return opened.Error(code);
  return opened;
}

SqliteFile::SqliteFile(std::string path, std::string if_damaged, sqlite3* file)
    : path_(std::move(path)), if_damaged_(std::move(if_damaged)), file_(file) {
  if (file_ != nullptr) sqlite3_extended_result_codes(file_, 1);
}
SqliteFile::~SqliteFile() { sqlite3_close_v2(file_); }
SqliteFile::SqliteFile(SqliteFile&& other) noexcept
    : path_(std::move(other.path_)),
      if_damaged_(std::move(other.if_damaged_)),
      file_(std::exchange(other.file_, nullptr)) {}
SqliteFile& SqliteFile::operator=(SqliteFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(if_damaged_, other.if_damaged_);
  std::swap(file_, other.file_);
  return *this;
}

void SqliteFile::SetBusyTimeout(int64_t timeout_us) {
  sqlite3_busy_timeout(file_, static_cast<int>(std::clamp<int64_t>(timeout_us / 1000, 1, 60'000)));
}

absl::Status SqliteFile::Run(const char* sql) {
  const int code = sqlite3_exec(file_, sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code);
}

int64_t SqliteFile::Changes() const { return sqlite3_changes(file_); }

bool SqliteFile::Busy() const { return (sqlite3_errcode(file_) & 0xff) == SQLITE_BUSY; }

bool SqliteFile::Full() const { return (sqlite3_errcode(file_) & 0xff) == SQLITE_FULL; }

bool SqliteFile::Damaged() const {
  const int code = sqlite3_errcode(file_) & 0xff;
  return code == SQLITE_CORRUPT || code == SQLITE_NOTADB;
}

bool SqliteFile::Moved() const {
  int moved = 0;
  if (file_ == nullptr) return false;
  sqlite3_file_control(file_, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  return moved != 0;
}

absl::Status SqliteFile::Error(int code) const {
  // SQLite's text is of the latest call; without a connection there is none.
  const char* const said = file_ == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(file_);
  const auto failed = [&](std::string_view what) {
    return absl::UnavailableError(absl::StrCat(
        "the store ", path_, " ", absl::string_view(what.data(), what.size()), " (", said, ")"));
  };
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return failed("is locked by another process");
    case SQLITE_FULL:
      return failed("cannot grow: its disk is full");
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return failed(absl::StrCat("is damaged", if_damaged_.empty() ? "" : "; ", if_damaged_));
    case SQLITE_CANTOPEN:
      return failed("cannot be opened");
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return failed("cannot be written: no permission");
    case SQLITE_IOERR:
      return failed("cannot be read or written");
    case SQLITE_NOMEM:
      return failed("cannot be used: out of memory");
    default:
      return absl::InternalError(absl::StrCat("the store ", path_, ": ", said));
  }
}

SqliteStatement::SqliteStatement(SqliteFile* file, std::string_view sql) : file_(file) {
  Keep(sqlite3_prepare_v2(file_->get(), sql.data(), static_cast<int>(sql.size()), &statement_,
                          nullptr));
}
SqliteStatement::~SqliteStatement() { sqlite3_finalize(statement_); }

void SqliteStatement::Keep(int code) {
  if (status_.ok() && code != SQLITE_OK) status_ = file_->Error(code);
}

SqliteStatement& SqliteStatement::Bind(int64_t number) {
  if (status_.ok()) Keep(sqlite3_bind_int64(statement_, ++bound_, number));
  return *this;
}

SqliteStatement& SqliteStatement::Bind(std::string_view bytes) {
  // An empty blob, not NULL, for an empty text.
  const char* const data = bytes.empty() ? "" : bytes.data();
  if (status_.ok()) {
    Keep(sqlite3_bind_blob64(statement_, ++bound_, data, bytes.size(), SQLITE_TRANSIENT));
  }
  return *this;
}

absl::StatusOr<bool> SqliteStatement::Step() {
  if (!status_.ok()) return status_;
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  Keep(code);
  return status_;
}

absl::Status SqliteStatement::Run() { return Step().status(); }

int64_t SqliteStatement::Number(int column) const {
  return sqlite3_column_int64(statement_, column);
}

std::string SqliteStatement::Bytes(int column) const {
  const void* const data = sqlite3_column_blob(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  return data == nullptr ? std::string() : std::string(static_cast<const char*>(data), size);
}

}  // namespace skein::services
