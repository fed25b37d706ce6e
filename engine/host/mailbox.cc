#include "engine/host/mailbox.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <random>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace skein::engine {
namespace {

MailboxCard* MapCard(int fd) {
  void* const base = mmap(nullptr, sizeof(MailboxCard), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return base == MAP_FAILED ? nullptr : static_cast<MailboxCard*>(base);
}

absl::StatusOr<MailboxCard*> MapCardOf(int fd) {
  struct stat file {};
  if (fstat(fd, &file) != 0 || file.st_size != sizeof(MailboxCard)) {
    return absl::NotFoundError("not a mailbox");
  }
  MailboxCard* const card = MapCard(fd);
  if (card == nullptr) return absl::ErrnoToStatus(errno, "a mailbox cannot be mapped");
  return card;
}

// Both ends are open in all processes, so that no process gets SIGPIPE when another closes one.
int MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return -1;
  const absl::StatusOr<int> both = OpenOf(getpid(), ends[0]);
  close(ends[0]);
  close(ends[1]);
  return both.value_or(-1);
}

}  // namespace

absl::StatusOr<int> OpenOf(pid_t pid, int fd) {
  const std::string process = absl::StrCat("/proc/", pid), path = absl::StrCat(process, "/fd/", fd);
  // Of one user: then they can open one another's.
  struct stat owner {};
  if (stat(process.c_str(), &owner) != 0) return absl::ErrnoToStatus(errno, process);
  if (owner.st_uid != geteuid()) return absl::PermissionDeniedError(process);
  const int opened = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (opened < 0) return absl::ErrnoToStatus(errno, path);
  return opened;
}

uint64_t RandomToken() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

std::unique_ptr<Mailbox> Mailbox::Make() {
  const int pipe = MakePipe(), file = memfd_create("skein-mailbox", MFD_CLOEXEC);
  const bool sized = file >= 0 && ftruncate(file, sizeof(MailboxCard)) == 0;
  MailboxCard* const card = sized && pipe >= 0 ? MapCard(file) : nullptr;
  if (card == nullptr) {
    if (pipe >= 0) close(pipe);
    if (file >= 0) close(file);
    return nullptr;
  }
  card->token = RandomToken();
  return std::unique_ptr<Mailbox>(new Mailbox(pipe, file, card));
}

Mailbox::~Mailbox() {
  munmap(card_, sizeof(MailboxCard));
  close(file_);
  close(pipe_);
}

std::string Mailbox::name() const { return absl::StrCat(pipe_, " ", file_, " ", card_->token); }

bool Mailbox::HasLetters() const { return card_->letters.load(std::memory_order_seq_cst) != seen_; }

std::vector<Letter> Mailbox::Take() {
  seen_ = card_->letters.load(std::memory_order_seq_cst);
  std::vector<Letter> taken;
  std::array<Letter, 64> read_now;
  for (ssize_t bytes; (bytes = read(pipe_, read_now.data(), sizeof read_now)) > 0;) {
    for (size_t i = 0; i < static_cast<size_t>(bytes) / sizeof(Letter); ++i) {
      if (read_now[i].pid != 0) taken.push_back(read_now[i]);
    }
  }
  return taken;
}

void Mailbox::Sleep() { card_->sleeping.store(++sleeps_, std::memory_order_seq_cst); }

void Mailbox::Wake() { card_->sleeping.store(0, std::memory_order_seq_cst); }

absl::StatusOr<MailboxOf> MailboxOf::Open(pid_t pid, const std::string& name) {
  int pipe_number = -1, file_number = -1;
  uint64_t token = 0;
  if (!(std::istringstream(name) >> pipe_number >> file_number >> token)) {
    return absl::InvalidArgumentError("not a mailbox's name");
  }
  const absl::StatusOr<int> file = OpenOf(pid, file_number);
  if (!file.ok()) return file.status();
  const absl::StatusOr<MailboxCard*> card = MapCardOf(*file);
  close(*file);
  if (!card.ok()) return card.status();
  const absl::StatusOr<int> pipe =
      (*card)->token == token ? OpenOf(pid, pipe_number)
                              : absl::NotFoundError("the mailbox belongs to another process");
  if (!pipe.ok()) {
    munmap(*card, sizeof(MailboxCard));
    return pipe.status();
  }
  return MailboxOf(*pipe, *card);
}

MailboxOf::MailboxOf(MailboxOf&& other) noexcept
    : pipe_(std::exchange(other.pipe_, -1)), card_(std::exchange(other.card_, nullptr)) {}

MailboxOf::~MailboxOf() {
  if (card_ != nullptr) munmap(card_, sizeof(MailboxCard));
  if (pipe_ >= 0) close(pipe_);
}

bool MailboxOf::Post(const Letter& letter) {
  if (write(pipe_, &letter, sizeof letter) != sizeof letter) return false;
  card_->letters.fetch_add(1, std::memory_order_seq_cst);
  return true;
}

// First the pipe, then the card: a process that is killed in between has woken the owner.
void MailboxOf::WakeOwner() {
  uint64_t sleep = card_->sleeping.load(std::memory_order_seq_cst);
  if (sleep == 0) return;
  const Letter none;
  // A full pipe is readable.
  [[maybe_unused]] const ssize_t written = write(pipe_, &none, sizeof none);
  card_->sleeping.compare_exchange_strong(sleep, 0, std::memory_order_seq_cst);
}

}  // namespace skein::engine
