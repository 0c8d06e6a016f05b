#include "base/build_id.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <string_view>

namespace meshtrain {
namespace {

constexpr std::string_view kOwner("GNU", 4);  // with its zero, as notes have it

size_t padded(size_t size) {
  return (size + 3) / 4 * 4;
}

// Of the notes of one segment: a header, the owner's name, the content; each padded to 4 bytes.
std::string id_in_notes(const char* at, size_t left) {
  while (left >= sizeof(ElfW(Nhdr))) {
    const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
    const size_t size = sizeof(*note) + padded(note->n_namesz) + padded(note->n_descsz);
    if (size > left) {
      break;
    }
    const char* const name = at + sizeof(*note);
    if (note->n_type == NT_GNU_BUILD_ID && std::string_view(name, note->n_namesz) == kOwner) {
      std::string text;
      for (size_t i = 0; i < note->n_descsz; ++i) {
        text += fmt::format("{:02x}", static_cast<unsigned char>(name[padded(note->n_namesz) + i]));
      }
      return text;
    }
    at += size;
    left -= size;
  }
  return {};
}

// The first object is the program itself.
int look_at_program(dl_phdr_info* info, size_t, void* out) {
  std::string& id = *static_cast<std::string*>(out);
  for (int i = 0; i < info->dlpi_phnum && id.empty(); ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type == PT_NOTE) {
      id = id_in_notes(reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr),
                       segment.p_memsz);
    }
  }
  return 1;
}

}  // namespace

std::string build_id() {
  std::string id;
  ::dl_iterate_phdr(look_at_program, &id);
  return id;
}

}  // namespace meshtrain
