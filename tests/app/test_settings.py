import pytest

from agentcache.errors import SettingsError
from agentcache.settings import Settings, load_settings, parse_size, size_text


@pytest.fixture(autouse=True)
def _clean(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGENTCACHE_API_KEYS", raising=False)
    monkeypatch.delenv("AGENTCACHE_ADMIN_KEYS", raising=False)


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GiB", 2**31), ("512MB", 512 * 10**6), ("1.5kib", 1536), ("77", 77), (9, 9), ("3 MiB", 3 * 2**20)],
)
def test_sizes_are_read_as_people_write_them(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "2XB", "-1", "1e9", "2 GiB more", True])
def test_other_sizes_are_refused(text):
    with pytest.raises(ValueError, match="expected a size such as 2GiB"):
        parse_size(text)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"num_pages": 3, "kv_memory": "2GiB"}, ["--num-pages 3", "--kv-memory 2147483648"]),
        ({"device": "cpu", "dtype": "float16"}, ["--device cpu", "--dtype float16"]),
        ({"page_size": 64, "prefill_chunk": 16}, ["--prefill-chunk 16", "--page-size 64"]),
        ({"page_size": "0"}, ["--page-size", "'0'", "greater than or equal to 1"]),
        ({"num_pages": "many"}, ["--num-pages", "'many'"]),
        ({"device": "tpu"}, ["--device", "'tpu'", "'cpu'"]),
        ({"kv_memory": "2 loaves"}, ["--kv-memory", "'2 loaves'", "2GiB"]),
        ({"weights": "int8", "dtype": "bfloat16"}, ["--weights int8", "--dtype bfloat16"]),
        ({"weights": "int4", "device": "cuda"}, ["--weights int4", "--device cuda"]),
        ({"weights_policy": "fast"}, ["--weights-policy fast", "native"]),
        ({"store": "http://u:secret@x"}, ["--store: got 'http://***@x'", "redis", "file"]),
        ({"store": "redis"}, ["--store: got 'redis'", "://"]),
        ({"replica": "R 1"}, ["--replica: got 'R 1'", "a-z and 0-9"]),
        ({"kv_events_replay": "tcp://*:5558"}, ["--kv-events-replay tcp://*:5558", "--kv-events"]),
        ({"host": "0.0.0.0"}, ["--host 0.0.0.0", "--api-key", "--allow-keyless"]),
        ({"host": "::"}, ["--host ::", "--api-key", "--allow-keyless"]),
        ({"host": ""}, ["--host", "--api-key", "--allow-keyless"]),
        ({"cors_origins": ("*",)}, ["--cors-origin *", "--api-key", "--allow-keyless"]),
        ({"cors_origins": ("https://app.example/",)}, ["--cors-origin: got 'https://app.example/'", "expected"]),
        ({"cors_origins": ("null",)}, ["--cors-origin: got 'null'"]),
        ({"colour": "red"}, ["--colour", "no such setting"]),
    ],
)
def test_bad_settings_are_refused_in_a_sentence_that_names_the_values(overrides, says):
    with pytest.raises(SettingsError) as caught:
        load_settings(overrides)
    for words in says:
        assert words in str(caught.value)


@pytest.mark.parametrize("key", ["", " ", "key ", " key"])
def test_a_key_that_no_client_can_send_is_refused_and_no_key_is_ever_shown(key):
    with pytest.raises(SettingsError, match="--api-key: got a key that is empty or has white space around it"):
        load_settings({"api_keys": ("good", key)})
    with pytest.raises(SettingsError) as caught:
        load_settings({"api_keys": "secret"})
    assert "secret" not in str(caught.value)


def test_an_environment_variable_without_a_key_in_it_does_not_open_the_server(monkeypatch):
    monkeypatch.setenv("AGENTCACHE_API_KEYS", " , ")
    with pytest.raises(SettingsError, match="AGENTCACHE_API_KEYS: got no key"):
        load_settings()


def test_a_fault_says_where_it_was_set_unless_on_the_command_line(tmp_path, monkeypatch):
    (tmp_path / "agentcache.toml").write_text("[serve]\npage-size = 0\nprot = 1\nport = 99999\n")
    monkeypatch.setenv("AGENTCACHE_ADMIN_KEYS", "ok")
    with pytest.raises(SettingsError) as caught:
        load_settings({"port": 70_000, "api_keys": (" ",)})
    faults = sorted(line.partition(": got")[0] for line in str(caught.value).splitlines())
    assert faults == [
        "--api-key", "--port", "agentcache.toml: --page-size", "agentcache.toml: --prot: no such setting"
    ]  # fmt: skip


@pytest.mark.parametrize("size", [1, 1023, 1024, 1536, 3 * 2**20, 32 * 2**20, 2**30 + 2**10, 8 * 2**30])
def test_a_size_is_written_as_it_can_be_given(size):
    assert parse_size(size_text(size)) == size
    assert len(size_text(size)) <= 10


@pytest.mark.parametrize("line", ['api-key = "one"', 'api-key = ["one"]', 'api-keys = ["one"]'])
def test_keys_stand_in_the_file_as_the_flag_is_spelled_too(tmp_path, line):
    (tmp_path / "agentcache.toml").write_text(f"[serve]\n{line}\n")
    assert load_settings().keys() == ("one",)


@pytest.mark.parametrize("lines", ["api-key = 5", "api-key = []\napi-keys = ['one']"])
def test_keys_of_another_kind_or_under_both_names_are_refused(tmp_path, lines):
    (tmp_path / "agentcache.toml").write_text(f"[serve]\n{lines}\n")
    with pytest.raises(SettingsError, match="--api-key"):
        load_settings()


@pytest.mark.parametrize("line", ['admin-key = "one"', 'admin-keys = ["one"]'])
def test_admin_keys_stand_in_the_file_and_in_the_environment(tmp_path, monkeypatch, line):
    (tmp_path / "agentcache.toml").write_text(f"[serve]\n{line}\n")
    assert load_settings().operator_keys() == ("one",)
    monkeypatch.setenv("AGENTCACHE_ADMIN_KEYS", "two,three")
    assert load_settings().operator_keys() == ("two", "three")
    assert "two" not in repr(load_settings())
    monkeypatch.setenv("AGENTCACHE_ADMIN_KEYS", ",")
    with pytest.raises(SettingsError, match="AGENTCACHE_ADMIN_KEYS: got no key"):
        load_settings()


def test_a_single_api_key_is_the_operators_and_one_of_several_is_not():
    assert Settings(api_keys=("a",)).operator_keys() == ("a",)
    assert Settings(api_keys=("a", "a")).operator_keys() == ("a",) * 2
    assert Settings(api_keys=("a", "b")).operator_keys() == ()
    assert Settings(api_keys=("a", "b"), admin_keys=("c",)).operator_keys() == ("c",)
    assert Settings(api_keys=("a",), admin_keys=("c",)).operator_keys() == ("c",)
    assert Settings().operator_keys() == () and not Settings().keyed


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LOCALHOST.", "a.localhost"])
def test_an_address_of_this_machine_alone_needs_no_key(host):
    assert load_settings({"host": host}).host == host


def test_any_address_is_served_with_a_key_or_when_told_so():
    for more in ({"api_keys": ("k",)}, {"admin_keys": ("k",)}, {"allow_keyless": True}):
        assert load_settings({"host": "0.0.0.0", "cors_origins": ("*",), **more}).host == "0.0.0.0"


def test_every_fault_is_told_at_once():
    with pytest.raises(SettingsError) as caught:
        load_settings({"page_size": 0, "port": 99999})
    assert "--page-size" in str(caught.value) and "--port" in str(caught.value)


def test_the_command_line_wins_over_the_environment_which_wins_over_the_file(tmp_path, monkeypatch):
    lines = ["[serve]", "page-size = 32", "max-running = 3", 'api-keys = ["file"]', 'kv-memory = "1GiB"']
    (tmp_path / "agentcache.toml").write_text("\n".join(lines))
    settings = load_settings({"page_size": "8"})
    assert (settings.page_size, settings.max_running, settings.keys(), settings.kv_memory) == (8, 3, ("file",), 2**30)
    monkeypatch.setenv("AGENTCACHE_API_KEYS", "one, two")
    assert load_settings().keys() == ("one", "two")
    assert load_settings({"api_keys": ("mine",)}).keys() == ("mine",)
    assert load_settings({"num_pages": 7}).kv_memory is None  # the command line sizes the pool another way


@pytest.mark.parametrize("text", ["[serve\n", "[serve]\npage_size = 'x'\n", "serve = 3\n", "[serve]\ntypo = 1\n"])
def test_a_broken_file_is_an_error_and_never_ignored(tmp_path, text):
    (tmp_path / "agentcache.toml").write_text(text)
    with pytest.raises(SettingsError):
        load_settings()


def test_a_named_file_must_exist(tmp_path):
    with pytest.raises(SettingsError, match="no such file"):
        load_settings(config=tmp_path / "absent.toml")


def test_keys_do_not_show_in_a_printed_settings_object():
    assert "hush" not in repr(Settings(api_keys=("hush",)))


def test_settings_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        Settings().page_size = 3


def test_home_comes_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTCACHE_HOME", str(tmp_path / "here"))
    assert load_settings().home == tmp_path / "here"
